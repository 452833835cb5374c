"""Group-relative advantages (DeepSeekMath, arXiv 2402.03300, section 4.1.2)."""

from collections.abc import Sequence
from typing import Literal

import attrs
from attrs.validators import ge, in_

from agentgym_core.credit import compare_attempts, spread
from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence


@attrs.frozen(kw_only=True)
class GroupRelative(AdvantageEstimator):
    """An episode's reward, less the mean and over the standard deviation of its group.

        A = (R - mean(R)) / (std(R) + eps)

    R is the sum of an episode's rewards, whichever turns earned them. A group is the attempts at
    one task in one step; each episode enters once, however many turns, tokens or sequences it has.
    Every trained token of an episode gets the same A. A group of equal rewards, or of one episode,
    gives exactly 0.
    """

    compares_groups = True

    scale: Literal["std", "none"] = attrs.field(default="std", validator=in_(("std", "none")))
    """`none` leaves out the division, which favours tasks that are nearly always or nearly never
    solved (Dr. GRPO, arXiv 2503.20783)."""
    eps: float = attrs.field(default=1e-6, validator=ge(0))
    """Added to the standard deviation, in units of reward."""

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return the advantages; `groups_without_signal` is the share of groups that gave 0."""
        credit, metrics = compare_attempts(sequences, self.relative)
        return Advantages(values=spread(sequences, credit), metrics=metrics)

    def relative(self, rewards: FloatArray) -> FloatArray:
        """The advantages of one group from its episodes' rewards, at least two that differ."""
        centered = rewards - rewards.mean()
        if self.scale == "none":
            return centered
        return centered / (rewards.std(ddof=1) + self.eps)
