"""ScalingInter-RL without a timetable: the horizon grows when the present one has nothing to teach.

AgentGym-RL (arXiv 2509.08755) grows the horizon at steps that are fixed before the run. Here the
run itself says when, by two signs that are looked for after every step:

    plateau    mean success over the last `window` steps is less than `min_gain` above that over
               the `window` steps before
    binding    the mean share of episodes cut by the horizon over the last `window` steps is above
               `cut_threshold`

The next stage begins once either has been seen after `patience` steps in a row, and the present one
has lasted `min_steps`. Each stage begins with no memory of the one before, since success at
another horizon is another quantity. The horizon never falls: what a longer one costs is
known at once, what it teaches is not, so going back would chase the dip that follows every move.
"""

import logging
from collections.abc import Sequence

import attrs
from attrs.validators import ge, gt, le, optional

from agentgym_core.protocols import RoundScheduler, State, StepReport
from agentgym_scaling_inter.stages import check_stages

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class AdaptiveRoundsScheduler(RoundScheduler):
    """Moves to the next entry of `rounds` on a plateau of success, or when the horizon binds.

    Example: window 2, min_gain 0.1, patience 1, and steps of success 0.2, 0.2, 0.5, 0.5, 0.5, 0.5:
    after the fourth the means are 0.2 and 0.5, a gain of 0.3; after the sixth 0.5 and 0.5, a
    plateau, and the seventh has the next horizon.
    """

    rounds: tuple[int, ...] = attrs.field(converter=tuple)
    """Actions per episode in each stage, from 1 up and never falling."""
    window: int = attrs.field(default=5, validator=ge(1))
    """Training steps over which success and cuts are averaged. Longer sees through more noise."""
    min_gain: float = attrs.field(default=0.02, validator=[gt(0), le(1)])
    """Share of episodes. By less than this from window to window, success does not rise."""
    cut_threshold: float = attrs.field(default=0.8, validator=[gt(0), le(1)])
    """Share of episodes. Cut more often than this, the horizon binds; 1 leaves that sign out, which
    suits worlds where every failure runs out of rounds."""
    min_steps: int | None = attrs.field(default=None, validator=optional(ge(1)))
    """Training steps that a stage takes at least; by default two windows, which a plateau needs
    anyway."""
    patience: int = attrs.field(default=3, validator=ge(1))
    """Steps in a row after which a sign must be seen, so that one odd step moves nothing."""

    def __attrs_post_init__(self) -> None:
        check_stages(self.rounds)
        soonest = self.window + self.patience - 1
        if self.min_steps is not None and self.min_steps < soonest:
            raise ValueError(
                f"min_steps is {self.min_steps}, but no sign is seen before step {soonest} of a "
                f"stage (window + patience - 1): set it to {soonest} or more, or leave it out"
            )

    def initial_state(self) -> State:
        """The first stage, of which nothing is known."""
        return _beginning(stage=0)

    def max_rounds(self, step: int, state: State) -> int:
        """The horizon of the stage that the state is in."""
        return self.rounds[min(state["stage"], len(self.rounds) - 1)]  # a fork may have fewer

    def next_state(self, state: State, report: StepReport) -> State:
        """Take a step's success and cuts in; a step that played no episode to an end has none."""
        last = len(self.rounds) - 1
        if "success" not in report.metrics or state["stage"] >= last:
            return state
        success = [*state["success"], report.metrics["success"]][-2 * self.window :]
        cut = [*state["cut"], report.metrics.get("horizon_cut", 0.0)][-self.window :]
        sign = self._sign(success, cut)
        seen_for = state["seen_for"] + 1 if sign else 0
        steps = state["steps"] + 1
        shortest = 2 * self.window if self.min_steps is None else self.min_steps
        if steps >= shortest and seen_for >= self.patience:
            longer = self.rounds[state["stage"] + 1]
            log.info("after step %d the horizon grows to %d: %s", report.step + 1, longer, sign)
            return _beginning(stage=state["stage"] + 1)
        return {
            "stage": state["stage"],
            "steps": steps,
            "seen_for": seen_for,
            "success": success,
            "cut": cut,
        }

    def _sign(self, success: Sequence[float], cut: Sequence[float]) -> str:
        """What says that this horizon has nothing to teach, in words; nothing if nothing does."""
        if len(cut) == self.window and _mean(cut) > self.cut_threshold:
            return f"the present one cuts {_mean(cut):.0%} of the episodes"
        if len(success) < 2 * self.window:
            return ""
        before, now = _mean(success[: self.window]), _mean(success[self.window :])
        return f"success was {before:.3f} and is {now:.3f}" if now - before < self.min_gain else ""


def _beginning(stage: int) -> State:
    return {"stage": stage, "steps": 0, "seen_for": 0, "success": [], "cut": []}


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)
