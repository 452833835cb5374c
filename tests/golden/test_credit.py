"""What estimators share: whitening over the batch, and an episode as one chain of tokens."""

import numpy as np
import pytest

from agentgym_core.credit import chains, compare_attempts, compared, discounted, whitened
from agentgym_core.types import TokenSequence


def sequence(mask, *, turns=None, rewards=None, episode=0, group=0):
    mask = np.array([bit == "1" for bit in mask])
    return TokenSequence(
        token_ids=np.zeros(len(mask), np.int64),
        mask=mask,
        logprobs=np.zeros(len(mask)),
        rewards=np.zeros(len(mask)) if rewards is None else np.array(rewards, np.float64),
        turns=np.where(mask, 0, -1) if turns is None else np.array(turns),
        versions=np.where(mask, 0, -1),
        episode=episode,
        group=group,
    )


def white(*pairs, eps=0.0):
    sequences = [sequence(mask) for mask, _ in pairs]
    result = whitened(sequences, [np.array(values, np.float64) for _, values in pairs], eps)
    return [value.tolist() for value in result]


def test_whitening_is_over_the_trained_tokens_of_all_sequences():
    # Trained: 1, 3, 5. Mean 3, std sqrt(8/3) with n in the denominator. The 100s are not trained.
    high = 2 / (8 / 3) ** 0.5
    values = white(("011", [100, 1, 3]), ("10", [5, 100]))
    assert values[0] == pytest.approx([0, -high, 0], abs=1e-12)
    assert values[1] == pytest.approx([high, 0], abs=1e-12)
    # With eps in the denominator.
    high = 2 / ((8 / 3) ** 0.5 + 0.5)
    assert white(("011", [9, 1, 3]), ("1", [5]), eps=0.5)[1] == pytest.approx([high], abs=1e-12)


def test_fewer_than_two_tokens_are_left_as_they_are():
    assert white() == []
    assert white(("00", [7, 7])) == [[0, 0]]
    assert white(("01", [7, 3]), ("0", [7])) == [[0, 3], [0]]
    # Two are enough: 3 and 1 have mean 2 and deviation 1.
    assert white(("1", [3]), ("1", [1])) == [[1], [-1]]


def test_equal_values_give_exactly_zero():
    # 0.1 + 0.2 and 0.3 differ by rounding, which must not be divided by itself.
    assert white(("11", [0.1 + 0.2, 0.3])) == [[0, 0]]
    assert white(("111", [0.1, 0.1, 0.1])) == [[0, 0, 0]]


def test_a_batch_in_two_parts_would_be_another():
    whole = white(("1", [3]), ("1", [1]), ("1", [-1]))
    assert whole[:2] != white(("1", [3]), ("1", [1]))


def test_discounted_sums_by_hand():
    assert discounted(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]
    assert discounted(np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    assert discounted(np.zeros(0), 0.5).tolist() == []


def test_a_chain_follows_the_turns_through_the_sequences():
    # Turn 1 lies in another context than turns 0 and 2.
    first = sequence("01101", turns=[-1, 0, 0, -1, 2])
    second = sequence("0011", turns=[-1, -1, 1, 1])
    (chain,) = chains([first, second])
    assert chain.sequences.tolist() == [0, 0, 1, 1, 0]
    assert chain.places.tolist() == [1, 2, 2, 3, 4]
    assert chain.turns.tolist() == [0, 0, 1, 1, 2]
    read = chain.read([np.arange(5.0), 10 + np.arange(4.0)])
    assert read.tolist() == [1, 2, 12, 13, 4]
    written = [np.zeros(5), np.zeros(4)]
    chain.write(read, written)
    assert [w.tolist() for w in written] == [[0, 1, 2, 0, 4], [0, 0, 12, 13]]
    (other,) = chains([second, first])
    assert other.read([10 + np.arange(4.0), np.arange(5.0)]).tolist() == read.tolist()


def test_chains_are_of_trained_tokens_by_episode():
    sequences = [
        sequence("01", episode=4, group=1),
        sequence("00", episode=2),
        sequence("11", episode=3),
    ]
    found = chains(sequences)
    assert [(c.episode, c.group, c.places.tolist()) for c in found] == [(3, 0, [0, 1]), (4, 1, [1])]


def test_untrained_tokens_of_a_trained_turn_do_not_break_a_chain():
    # A reply that was sampled but is not learned: turn 1.
    (chain,) = chains([sequence("100100", turns=[0, -1, 1, 2, -1, -1])])
    assert chain.turns.tolist() == [0, 2]


def test_attempts_are_compared_once_each():
    sequences = [
        sequence("1", rewards=[1], episode=0),
        sequence("1", rewards=[2], episode=0),
        sequence("1", rewards=[1], episode=1),
        sequence("1", rewards=[5], episode=2, group=1),
    ]
    seen = []

    def compare(rewards):
        seen.append(rewards.tolist())
        return rewards - rewards[0]

    credit, metrics = compare_attempts(sequences, compare)
    assert seen == [[3, 1]]
    assert credit == {0: 0, 1: -2, 2: 0}
    assert metrics == {"groups_without_signal": 0.5}


def test_rewards_a_billionth_apart_are_equal():
    assert compared(np.array([0.0, 1e-9]), lambda rewards: rewards + 1).tolist() == [0, 0]
    assert white(("11", [0.0, 1e-9])) == [[0, 0]]


def test_whitening_adds_a_hundred_millionth_to_the_deviation():
    # 0 and 2e-8: the deviation is 1e-8, and as much is added.
    (values,) = whitened([sequence("11")], [np.array([0.0, 2e-8])])
    assert values == pytest.approx([-0.5, 0.5])
