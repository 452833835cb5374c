"""Which of the episodes that a step played it learns from (DAPO, arXiv 2503.14476)."""

from collections.abc import Sequence

import attrs
import numpy as np

from agentgym_core.credit import SAME_REWARD
from agentgym_core.types import Ending, Episode, Group


def has_signal(group: Group) -> bool:
    """Whether its attempts earned different rewards, and any of them has a turn to learn."""
    rewards = [episode.reward for episode in group.episodes]
    trained = any(turn.trained for episode in group.episodes for turn in episode.turns)
    return trained and bool(np.ptp(rewards) > SAME_REWARD)


def without_overlong(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The same groups, where no turn of an episode that ran out of tokens is trained.

    Such an episode keeps its reward and its place among the attempts, but where it was cut says
    little of what it did (section 3.4 of the paper).
    """
    return tuple(
        attrs.evolve(group, episodes=tuple(map(_unless_cut, group.episodes))) for group in groups
    )


def _unless_cut(episode: Episode) -> Episode:
    if episode.ending is not Ending.OUT_OF_TOKENS:
        return episode
    return attrs.evolve(
        episode, turns=tuple(attrs.evolve(turn, trained=False) for turn in episode.turns)
    )
