"""REINFORCE++: returns and group means that are normalised over the whole batch."""

import numpy as np
import pytest

from agentgym_core.kl_rewards import kl_to_rewards
from agentgym_core.types import Scores, TokenSequence
from agentgym_reinforce_pp.normalised import NormalisedBaseline, NormalisedReturns


def sequence(mask, rewards, *, turns=None, episode=0, group=0):
    mask = np.array([bit == "1" for bit in mask])
    placed = np.zeros(len(mask))
    for place, reward in rewards.items():
        placed[place] = reward
    return TokenSequence(
        token_ids=np.zeros(len(mask), np.int64),
        mask=mask,
        logprobs=np.zeros(len(mask)),
        rewards=placed,
        turns=np.where(mask, 0, -1) if turns is None else np.array(turns),
        versions=np.where(mask, 0, -1),
        episode=episode,
        group=group,
    )


def values_of(estimator, sequences):
    return [v.tolist() for v in estimator(sequences, Scores()).values]


def test_returns_by_hand():
    # mask 1100 1100, 1 for the first turn and 2 for the second: G = 3 3 2 2 with gamma 1.
    # Mean 2.5, deviation 0.5: A = 1 1 -1 -1.
    played = sequence("11001100", {1: 1, 5: 2}, turns=[0, 0, -1, -1, 1, 1, -1, -1])
    (values,) = values_of(NormalisedReturns(eps=0.0), [played])
    assert values == [1, 1, 0, 0, -1, -1, 0, 0]
    # gamma 1/2, from the last token back: 2, 2/2 = 1, 1 + 1/2 = 1.5, 1.5/2 = 0.75.
    (halved,) = values_of(NormalisedReturns(gamma=0.5, eps=0.0), [played])
    returns = np.array([0.75, 1.5, 1.0, 2.0])
    expected = (returns - returns.mean()) / returns.std()
    assert [halved[i] for i in (0, 1, 4, 5)] == pytest.approx(expected.tolist(), abs=1e-12)


def test_the_metrics_are_before_it_is_normalised():
    result = NormalisedReturns()([sequence("11", {0: 1, 1: 2})], Scores())
    assert result.metrics == {"return_mean": 2.5, "return_std": 0.5}


def test_the_batch_is_normalised_and_not_the_group():
    # G: 1 of one token, 0 of three. Mean 1/4, std sqrt(3)/4.
    sequences = [
        sequence("01", {1: 1}, episode=0, group=0),
        sequence("111", {}, episode=1, group=1),
    ]
    values = values_of(NormalisedReturns(eps=0.0), sequences)
    assert values[0] == pytest.approx([0, 3**0.5], abs=1e-12)
    assert values[1] == pytest.approx([-1 / 3**0.5] * 3, abs=1e-12)


@pytest.mark.parametrize("estimator", [NormalisedReturns(), NormalisedBaseline()])
def test_fewer_than_two_trained_tokens(estimator):
    assert values_of(estimator, []) == []
    assert values_of(estimator, [sequence("00", {1: 5})]) == [[0, 0]]
    alone = values_of(estimator, [sequence("01", {1: 5})])
    # The return itself; but with nothing to compare it with, a group's baseline leaves nothing.
    assert alone == ([[0, 5]] if isinstance(estimator, NormalisedReturns) else [[0, 0]])


def test_two_trained_tokens_are_enough():
    sequences = [sequence("01", {1: 1}, episode=0), sequence("1", {}, episode=1)]
    for estimator in (NormalisedReturns(eps=0.0), NormalisedBaseline(eps=0.0)):
        assert values_of(estimator, sequences) == [[0, 1], [-1]]


@pytest.mark.parametrize("estimator", [NormalisedReturns(), NormalisedBaseline()])
def test_equal_returns_give_exactly_zero(estimator):
    sequences = [sequence("11", {1: 0.1 + 0.2}, episode=0), sequence("1", {0: 0.3}, episode=1)]
    assert values_of(estimator, sequences) == [[0, 0], [0]]


def test_time_runs_over_turns_through_several_sequences():
    # Turn 1 lies in the second context, between turns 0 and 2 of the first.
    first = sequence("0101", {1: 1, 3: 4}, turns=[-1, 0, -1, 2])
    second = sequence("001", {2: 2}, turns=[-1, -1, 1])
    whole = sequence("01001001", {1: 1, 4: 2, 7: 4}, turns=[-1, 0, -1, -1, 1, -1, -1, 2])
    for gamma in (1.0, 0.5):
        split = values_of(NormalisedReturns(gamma=gamma), [first, second])
        (one,) = values_of(NormalisedReturns(gamma=gamma), [whole])
        assert [split[0][1], split[1][2], split[0][3]] == [one[1], one[4], one[7]]


def test_what_the_world_says_is_no_time():
    short = [sequence("011", {2: 1}), sequence("1", {}, episode=1)]
    long = [sequence("0100001", {6: 1}), sequence("0001", {}, episode=1)]
    one, other = (values_of(NormalisedReturns(gamma=0.5), s) for s in (short, long))
    assert [v for line in one for v in line if v] == [v for line in other for v in line if v]


def test_a_kl_in_the_reward_counts_from_its_token_on():
    # The paper's A = r - beta (KL_t + ... + KL_T): log pi - log ref is 0.3 and 0.1.
    charged, _ = kl_to_rewards(
        [sequence("11", {1: 1})], [np.array([0.3, 0.1])], [np.zeros(2)], coef=0.5
    )
    metrics = NormalisedReturns()(charged, Scores()).metrics
    # G = 1 - 0.5 x 0.4 = 0.8 and 1 - 0.5 x 0.1 = 0.95.
    assert metrics["return_mean"] == pytest.approx(0.875, abs=1e-12)
    assert metrics["return_std"] == pytest.approx(0.075, abs=1e-12)


def test_baseline_by_hand():
    # Group 0 earns 4 and 0, group 1 earns 3 and 1: B = 2, -2, 1, -1, one token each but for the
    # last, which has two: mean (2 - 2 + 1 - 1 - 1)/5 = -0.2, squares (4 + 4 + 1 + 1 + 1)/5 = 2.2.
    sequences = [
        sequence("01", {1: 4}, episode=0),
        sequence("1", {}, episode=1),
        sequence("1", {0: 3}, episode=2, group=1),
        sequence("101", {0: 0.25, 2: 0.75}, episode=3, group=1),
    ]
    std = (2.2 - 0.04) ** 0.5
    result = NormalisedBaseline(eps=0.0)(sequences, Scores())
    values = [v.tolist() for v in result.values]
    expected = [[0, 2.2], [-1.8], [1.2], [-0.8, 0, -0.8]]
    for value, line in zip(values, expected, strict=True):
        assert value == pytest.approx([x / std for x in line], abs=1e-12)
    assert result.metrics == pytest.approx(
        {"return_mean": -0.2, "return_std": std, "groups_without_signal": 0.0}, abs=1e-12
    )


def test_no_group_is_divided_by_its_own_deviation():
    sequences = [
        sequence("1", {0: reward}, episode=i, group=i // 2) for i, reward in enumerate([4, 0, 2, 1])
    ]
    values = values_of(NormalisedBaseline(), sequences)
    assert values[0][0] == pytest.approx(4 * values[2][0], abs=1e-12)


def test_baseline_counts_an_episode_once():
    # Episode 0 earns 1 + 2 in two sequences: the group's mean is (3 + 1)/2 = 2, so B = 1, 1, -1.
    sequences = [
        sequence("1", {0: 1}, episode=0),
        sequence("1", {0: 2}, turns=[1], episode=0),
        sequence("11", {1: 1}, episode=1),
    ]
    assert values_of(NormalisedBaseline(eps=0.0), sequences) == [[1], [1], [-1, -1]]


def test_a_group_without_signal_moves_only_with_the_mean():
    sequences = [
        sequence("1", {0: 1}, episode=0),
        sequence("1", {0: 1}, episode=1),
        sequence("1", {0: 1}, episode=2, group=1),
        sequence("11", {}, episode=3, group=1),
        sequence("1", {0: 9}, episode=4, group=2),
    ]
    # B = 0, 0, 0.5, -0.5, -0.5, 0: mean -1/12.
    result = NormalisedBaseline()(sequences, Scores())
    std = (0.75 / 6 - 1 / 144) ** 0.5
    assert [v[0] for v in result.values[:2]] == pytest.approx([1 / 12 / std] * 2, rel=1e-6)
    assert result.metrics["groups_without_signal"] == pytest.approx(2 / 3)


def test_they_equal_the_plain_definitions_on_random_batches():
    draw = np.random.default_rng(4)
    sequences = []
    for episode in range(12):
        for turn in range(draw.integers(1, 4)):  # each turn in a context of its own
            num = int(draw.integers(1, 5))
            mask = "0" * int(draw.integers(0, 3)) + "1" * num
            rewards = {len(mask) - 1: draw.normal()}
            turns = [turn if bit == "1" else -1 for bit in mask]
            sequences.append(
                sequence(mask, rewards, turns=turns, episode=episode, group=episode // 4)
            )
    gamma = 0.9
    returns, baseline = [], []
    for s in sequences:
        later = [o for o in sequences if o.episode == s.episode and o.turns.max() > s.turns.max()]
        ahead = np.concatenate([np.zeros(0), *(o.rewards[o.mask] for o in later)])
        own = s.rewards[s.mask]
        for place in range(len(own)):
            rest = np.concatenate([own[place:], ahead])
            returns.append(sum(gamma**k * r for k, r in enumerate(rest)))
        totals = {}
        for o in sequences:
            if o.group == s.group:
                totals[o.episode] = totals.get(o.episode, 0) + o.rewards.sum()
        baseline += [totals[s.episode] - np.mean(list(totals.values()))] * len(own)
    for estimator, raw in (
        (NormalisedReturns(gamma=gamma), np.array(returns)),
        (NormalisedBaseline(), np.array(baseline)),
    ):
        found = estimator(sequences, Scores()).values
        flat = np.concatenate([v[s.mask] for v, s in zip(found, sequences, strict=True)])
        np.testing.assert_allclose(flat, (raw - raw.mean()) / (raw.std() + 1e-8), atol=1e-10)


@pytest.mark.parametrize("options", [{"gamma": 0.0}, {"gamma": 1.1}, {"eps": -1.0}])
def test_refused(options):
    (key,) = options
    with pytest.raises(ValueError, match=f"'{key}' must be"):
        NormalisedReturns(**options)
