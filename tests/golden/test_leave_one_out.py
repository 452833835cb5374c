import numpy as np
import pytest

from agentgym_core.types import Scores, TokenSequence
from agentgym_grpo.group_relative import GroupRelative
from agentgym_rloo.leave_one_out import LeaveOneOut


def sequence(rewards, *, episode, group=0, mask=None):
    """A token each, with its reward; all are trained unless a mask says otherwise."""
    mask = np.array([bit == "1" for bit in mask or "1" * len(rewards)])
    return TokenSequence(
        token_ids=np.zeros(len(mask), np.int64),
        mask=mask,
        logprobs=np.zeros(len(mask)),
        rewards=np.array(rewards, np.float64),
        turns=np.where(mask, np.arange(len(mask)), -1),
        versions=np.where(mask, 0, -1),
        episode=episode,
        group=group,
    )


def estimate(sequences):
    result = LeaveOneOut()(sequences, Scores())
    return [value.tolist() for value in result.values], result.metrics


def test_by_hand():
    # 6 - (2 + 1)/2 = 4.5,  2 - (6 + 1)/2 = -1.5,  1 - (6 + 2)/2 = -3
    values, metrics = estimate([sequence([r], episode=i) for i, r in enumerate([6, 2, 1])])
    assert values == [[4.5], [-1.5], [-3.0]]
    assert metrics == {"groups_without_signal": 0.0}


def test_episodes_count_once_however_many_turns_and_sequences_they_have():
    # Episode 0 earns 1 + 2 + 3 over three turns in two sequences; episodes 1 and 2 earn 2 and 1.
    values, _ = estimate(
        [
            sequence([1, 0, 2], episode=0, mask="101"),
            sequence([3], episode=0),
            sequence([2], episode=1),
            sequence([0, 0, 0, 1], episode=2),
        ]
    )
    assert values == [[4.5, 0, 4.5], [4.5], [-1.5], [-3.0] * 4]


def test_equal_rewards_and_single_attempts_give_exactly_zero():
    values, metrics = estimate(
        [
            sequence([0.1 + 0.2], episode=0),
            sequence([0.3], episode=1),
            sequence([7], episode=2, group=1),
            sequence([1], episode=3, group=2),
            sequence([0], episode=4, group=2),
        ]
    )
    assert values == [[0], [0], [0], [1], [-1]]
    assert metrics == {"groups_without_signal": pytest.approx(2 / 3)}


def test_it_is_the_centered_reward_by_k_over_k_minus_1():
    draw = np.random.default_rng(0)
    sequences = [sequence(draw.normal(size=3), episode=i, group=i // 5) for i in range(20)]
    values = LeaveOneOut()(sequences, Scores()).values
    centered = GroupRelative(scale="none")(sequences, Scores()).values
    np.testing.assert_allclose(values, 5 / 4 * np.array(centered), atol=1e-12)


def test_it_equals_the_plain_definition_on_random_groups():
    draw = np.random.default_rng(1)
    sequences, rewards = [], {}
    for group, size in enumerate([2, 7, 3]):
        for _ in range(size):
            episode = len(rewards)
            rewards[episode] = (group, draw.normal())
            sequences.append(sequence([rewards[episode][1]], episode=episode, group=group))
    for s, (value,) in zip(sequences, estimate(sequences)[0], strict=True):
        others = [r for e, (g, r) in rewards.items() if g == s.group and e != s.episode]
        own = rewards[s.episode][1]
        assert value == pytest.approx(own - sum(others) / len(others), abs=1e-10)


def test_nothing_trained_and_nothing_at_all():
    values, _ = estimate([sequence([1], episode=0, mask="0"), sequence([0], episode=1)])
    assert values == [[0], [-1]]
    assert estimate([])[0] == []
