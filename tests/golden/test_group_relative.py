import numpy as np
import pytest

from agentgym_core.types import Scores, TokenSequence
from agentgym_grpo.group_relative import GroupRelative


def sequence(mask, rewards, *, episode, group=0, truncated=False):
    mask = np.array([bit == "1" for bit in mask])
    placed = np.zeros(len(mask))
    for position, reward in rewards.items():
        placed[position] = reward
    return TokenSequence(
        token_ids=np.zeros(len(mask), np.int64),
        mask=mask,
        logprobs=np.zeros(len(mask)),
        rewards=placed,
        turns=np.where(mask, 0, -1),
        versions=np.where(mask, 0, -1),
        episode=episode,
        group=group,
        truncated=truncated,
    )


def outcome(reward, *, episode, group=0, mask="0011"):
    return sequence(mask, {len(mask) - 1: reward}, episode=episode, group=group)


def advantages_of(sequences, **options):
    return GroupRelative(**options)(sequences, Scores())


def first_values(sequences, **options):
    result = advantages_of(sequences, **options)
    return [v[s.mask][0] for v, s in zip(result.values, sequences, strict=True)]


def test_by_hand():
    # Rewards 1, 0, 0, 1: mean 1/2, sum of squares 4 x 1/4 = 1, std with n - 1 = 3: sqrt(1/3).
    # A = +-(1/2) / sqrt(1/3) = +-sqrt(3)/2 = +-0.8660254
    sequences = [outcome(reward, episode=i) for i, reward in enumerate([1, 0, 0, 1])]
    high = 3**0.5 / 2
    assert first_values(sequences, eps=0.0) == pytest.approx([high, -high, -high, high], abs=1e-12)
    # With eps in the denominator.
    expected = 0.5 / ((1 / 3) ** 0.5 + 0.01)
    assert first_values(sequences, eps=0.01)[0] == pytest.approx(expected, abs=1e-12)


def test_scale_none_is_the_centered_reward():
    sequences = [outcome(reward, episode=i) for i, reward in enumerate([4, 1, 1])]
    assert first_values(sequences, scale="none") == [2, -1, -1]


def test_every_trained_token_gets_it_and_no_other():
    # mask 1100 1100 with the reward on the last generated token.
    one = sequence("11001100", {5: 1.0}, episode=0)
    two = sequence("0110", {2: 0.0}, episode=1)
    values = advantages_of([one, two], scale="none").values
    assert values[0].tolist() == [0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0]
    assert values[1].tolist() == [0, -0.5, -0.5, 0]
    assert all(v.dtype == np.float64 for v in values)


def test_statistics_are_over_episodes_not_turns_or_rows():
    # Episode 0 has reward 3 over three turns in two sequences; episode 1 has reward 1 in one turn.
    # The baseline is (3 + 1) / 2 = 2. Over turns it would be 1, over rows 4/3.
    sequences = [
        sequence("01010", {1: 1.0, 3: 0.5}, episode=0),
        sequence("0001", {3: 1.5}, episode=0),
        sequence("01", {1: 1.0}, episode=1),
    ]
    assert first_values(sequences, scale="none") == [1, 1, -1]
    assert first_values(sequences, eps=0.0) == pytest.approx(
        [1 / 2**0.5, 1 / 2**0.5, -1 / 2**0.5], abs=1e-12
    )


def test_a_long_episode_does_not_weigh_more():
    short = [outcome(1, episode=0, mask="01"), outcome(0, episode=1, mask="01")]
    long = [outcome(1, episode=0, mask="0" + "1" * 50), outcome(0, episode=1, mask="01")]
    assert first_values(short) == first_values(long)


def test_groups_do_not_see_each_other():
    easy = [outcome(1, episode=0, group=0), outcome(0, episode=1, group=0)]
    hard = [outcome(100, episode=2, group=1), outcome(0, episode=3, group=1)]
    mixed = [easy[0], hard[0], easy[1], hard[1]]
    assert first_values(mixed, scale="none") == [0.5, 50, -0.5, -50]


def test_equal_rewards_give_exactly_zero():
    # 0.1 + 0.2 and 0.3 differ by rounding, and the mean of three 0.1 is not 0.1.
    for rewards in ([1, 1, 1], [0, 0], [0.1, 0.1, 0.1], [0.1 + 0.2, 0.3, 0.3]):
        sequences = [outcome(reward, episode=i) for i, reward in enumerate(rewards)]
        for scale in ("std", "none"):
            values = advantages_of(sequences, scale=scale, eps=0.0).values
            assert all(v.tolist() == [0, 0, 0, 0] for v in values)


def test_a_single_episode_gives_zero():
    result = advantages_of([outcome(1, episode=0)])
    assert result.values[0].tolist() == [0, 0, 0, 0]
    assert result.metrics == {"groups_without_signal": 1.0}


def test_the_share_of_groups_without_signal():
    sequences = [
        outcome(1, episode=0, group=0),
        outcome(0, episode=1, group=0),
        outcome(1, episode=2, group=1),
        outcome(1, episode=3, group=1),
        outcome(0, episode=4, group=2),
        outcome(0, episode=5, group=2),
        outcome(7, episode=6, group=5),
    ]
    assert advantages_of(sequences).metrics == {"groups_without_signal": 0.75}


def test_an_all_masked_episode_is_in_the_baseline():
    # It was played and earned its reward; nothing of it is trained.
    sequences = [outcome(1, episode=0), outcome(0, episode=1, mask="0000")]
    values = advantages_of(sequences, scale="none").values
    assert values[0].tolist() == [0, 0, 0.5, 0.5]
    assert values[1].tolist() == [0, 0, 0, 0]


def test_no_sequences():
    result = advantages_of([])
    assert result.values == ()
    assert result.metrics == {"groups_without_signal": 0.0}


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_invalid_rewards_never_get_here(reward):
    with pytest.raises(AssertionError, match="dropped"):
        advantages_of([outcome(reward, episode=0), outcome(0, episode=1)])


@pytest.mark.parametrize("options", [{"scale": "max"}, {"eps": -1.0}])
def test_refused(options):
    (key,) = options
    with pytest.raises(ValueError, match=f"'{key}' must be"):
        GroupRelative(**options)


def test_eps_is_a_millionth_of_a_reward():
    # Rewards 0 and 2e-6: the standard deviation with n - 1 is sqrt(2) 1e-6, and 1e-6 is added.
    values = first_values([outcome(0.0, episode=0), outcome(2e-6, episode=1)])
    assert values == pytest.approx([-1 / (2**0.5 + 1), 1 / (2**0.5 + 1)], abs=1e-12)
