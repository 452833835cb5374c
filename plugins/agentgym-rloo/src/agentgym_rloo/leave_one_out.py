"""The leave-one-out baseline (Kool et al. 2019; for language models arXiv 2402.14740)."""

from collections.abc import Sequence

import attrs

from agentgym_core.credit import compare_attempts, spread
from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence


@attrs.frozen(kw_only=True)
class LeaveOneOut(AdvantageEstimator):
    """An episode's reward, less the mean reward of the other attempts at its task.

        A = R - mean(R of the others)

    R is the sum of an episode's rewards, whichever turns earned them. Each episode enters once,
    however many turns, tokens or sequences it has, and each of its trained tokens gets the same A.
    The baseline does not depend on the episode itself, so it leaves the gradient's expectation as
    it is. A group of equal rewards gives exactly 0; so does an episode without others, which the
    paper leaves open.
    """

    compares_groups = True

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return the advantages; `groups_without_signal` is the share of groups that gave 0."""
        credit, metrics = compare_attempts(sequences, _less_the_others)
        return Advantages(values=spread(sequences, credit), metrics=metrics)


def _less_the_others(rewards: FloatArray) -> FloatArray:
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)
