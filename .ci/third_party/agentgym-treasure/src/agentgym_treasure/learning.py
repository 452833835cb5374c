"""How a run learns to find treasure."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from agentgym_core.protocols import (
    AdvantageEstimator,
    EpisodeReward,
    Reward,
    RoundScheduler,
)
from agentgym_core.types import Advantages, Episode, Scores, TokenSequence


@attrs.frozen(kw_only=True)
class Nearness(Reward):
    """A little for every observation that is warm."""

    bonus: float = 0.1

    def __call__(self, episode: Episode) -> EpisodeReward:
        """Return `bonus` for each turn that was answered with `warm`."""
        turns = tuple(self.bonus * (turn.observation == "warm") for turn in episode.turns)
        return EpisodeReward(turns=turns, parts={"nearness": sum(turns)})


@attrs.frozen(kw_only=True)
class AgainstPeers(AdvantageEstimator):
    """A = R - the mean over the attempts at the same task."""

    compares_groups = True

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return one value for each token under the mask."""
        del scores
        rewards: dict[int, dict[int, float]] = {}
        for sequence in sequences:
            group = rewards.setdefault(sequence.group, {})
            earned = float(sequence.rewards.sum())
            group[sequence.episode] = group.get(sequence.episode, 0.0) + earned
        credit = {
            episode: earned - float(np.mean(list(group.values())))
            for group in rewards.values()
            for episode, earned in group.items()
        }
        return Advantages(values=tuple(np.where(s.mask, credit[s.episode], 0.0) for s in sequences))


@attrs.frozen(kw_only=True)
class Doubling(RoundScheduler):
    """`first` rounds, and twice as many after every `every` steps, up to `last`."""

    first: int = 2
    every: int = 1
    last: int = 8

    def max_rounds(self, step: int, state: Any) -> int:
        """A function of the step alone."""
        del state
        return min(self.last, self.first * 2 ** min(step // self.every, 30))
