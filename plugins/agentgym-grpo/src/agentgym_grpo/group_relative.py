"""Group-relative advantages (DeepSeekMath, arXiv 2402.03300, section 4.1.2)."""

from collections.abc import Sequence
from typing import Literal

import attrs
import numpy as np
from attrs.validators import ge, in_

from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence

SAME_REWARD = 1e-9
"""Rewards this close differ by the rounding of their sums."""


@attrs.frozen(kw_only=True)
class GroupRelative(AdvantageEstimator):
    """An episode's reward, less the mean and over the standard deviation of its group.

        A = (R - mean(R)) / (std(R) + eps)

    R is the sum of an episode's rewards. A group is the attempts at one task in one step; each
    episode enters once, however many turns, tokens or sequences it has. Every trained token of an
    episode gets the same A. A group of equal rewards, or of one episode, gives exactly 0.
    """

    compares_groups = True

    scale: Literal["std", "none"] = attrs.field(default="std", validator=in_(("std", "none")))
    """`none` leaves out the division, which favours tasks that are nearly always or nearly never
    solved (Dr. GRPO, arXiv 2503.20783)."""
    eps: float = attrs.field(default=1e-6, validator=ge(0))
    """Added to the standard deviation, in units of reward."""

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return the advantages; `groups_without_signal` is the share of groups that gave 0."""
        rewards: dict[int, dict[int, float]] = {}
        for sequence in sequences:
            group = rewards.setdefault(sequence.group, {})
            reward = float(sequence.rewards.sum())
            group[sequence.episode] = group.get(sequence.episode, 0.0) + reward

        advantages: dict[int, float] = {}
        num_silent = 0
        for group in rewards.values():
            values = self.relative(np.array(list(group.values())))
            advantages |= zip(group, values.tolist(), strict=True)
            num_silent += not values.any()
        return Advantages(
            values=tuple(np.where(seq.mask, advantages[seq.episode], 0.0) for seq in sequences),
            metrics={"groups_without_signal": num_silent / max(1, len(rewards))},
        )

    def relative(self, rewards: FloatArray) -> FloatArray:
        """The advantages of one group from its episodes' rewards."""
        assert np.isfinite(rewards).all(), "episodes with such rewards are dropped before"
        if np.ptp(rewards) <= SAME_REWARD:
            return np.zeros_like(rewards)
        centered = rewards - rewards.mean()
        if self.scale == "none":
            return centered
        return centered / (rewards.std(ddof=1) + self.eps)
