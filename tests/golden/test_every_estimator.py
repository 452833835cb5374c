"""What holds of every advantage estimator that is installed."""

import numpy as np
import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.types import Scores, TokenSequence

CATALOG = Catalog.installed()
NAMES = sorted(CATALOG.names("advantage"))


def sequence(mask, reward, *, episode, group=0, value=0.25):
    """Two turns of the same state each; `value` is what a critic says of every token."""
    mask = np.array(mask, bool)
    rewards = np.zeros(len(mask))
    rewards[np.flatnonzero(mask)[-1]] = reward
    turns = np.where(mask, np.cumsum(np.diff(mask, prepend=False) & mask) - 1, -1)
    return TokenSequence(
        token_ids=np.arange(len(mask)),
        mask=mask,
        logprobs=np.where(mask, -0.5, 0.0),
        rewards=rewards,
        turns=turns,
        versions=np.where(mask, 0, -1),
        states=np.where(mask, turns, -1),
        episode=episode,
        group=group,
    )


def credit(name, sequences):
    values = tuple(np.where(s.mask, 0.25, 1e6) for s in sequences)
    scores = Scores(
        logprobs=tuple(s.logprobs for s in sequences),
        reference_logprobs=tuple(s.logprobs for s in sequences),
        values=values,
        final_values=np.zeros(len(sequences)),
    )
    return CATALOG.build("advantage", name, "advantage")(sequences, scores).values


TURNS = [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_reward_at_the_end_reaches_every_token_the_policy_sampled(name):
    """Upstream's lay on an observation token, where no estimator but a plain sum could see it."""
    values = credit(name, [sequence(TURNS, 1.0, episode=0), sequence(TURNS, 0.0, episode=1)])
    won, lost = (value[np.array(TURNS, bool)] for value in values)
    assert (won > 0).all()
    assert (lost < 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_the_world_says_changes_nothing(name):
    """However long, and whatever a critic makes of it: here a million."""
    longer = [0] * 7 + [1, 1] + [0] * 9 + [1, 1]
    short = credit(name, [sequence(TURNS, 1.0, episode=0), sequence(TURNS, 0.0, episode=1)])
    long = credit(name, [sequence(longer, 1.0, episode=0), sequence(TURNS, 0.0, episode=1)])
    assert long[0][np.array(longer, bool)] == pytest.approx(short[0][np.array(TURNS, bool)])
    assert not long[0][~np.array(longer, bool)].any()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_not_finite(name):
    """Equal rewards, a single attempt, a single token."""
    for batch in (
        [sequence(TURNS, 1.0, episode=n) for n in range(4)],
        [sequence(TURNS, 1.0, episode=0)],
        [sequence([0, 1], 1.0, episode=0)],
    ):
        values = credit(name, batch)
        assert all(np.isfinite(value).all() for value in values)


def test_all_of_ours_are_among_them():
    assert {"gae", "gae-turn", "gigpo", "group-relative", "leave-one-out"} <= set(NAMES)
    assert {"reinforce-pp", "reinforce-pp-baseline"} <= set(NAMES)
