"""The suite of round schedulers finds what would part a resumed run from an uninterrupted one."""

import attrs
import pytest

from agentgym_core.protocols import RoundScheduler
from agentgym_core.testing import RoundSchedulerConformance

from .conftest import class_name, outcome


@attrs.frozen(kw_only=True)
class Grows(RoundScheduler):
    """A sound one, whose horizon is its state."""

    def initial_state(self):
        return {"rounds": 1}

    def max_rounds(self, step, state):
        return state["rounds"]

    def next_state(self, state, report):
        return {"rounds": state["rounds"] + (report.metrics.get("success", 0) > 0.4)}


@attrs.frozen(kw_only=True)
class HidesItsWindow(Grows):
    """Grows at every fiftieth report that it remembers, so asked twice it says the same."""

    seen: list = attrs.field(factory=list, init=False, eq=False)

    def next_state(self, state, report):
        self.seen.append(report.step)
        return {"rounds": state["rounds"] + (len(self.seen) % 50 == 0)}


@attrs.frozen(kw_only=True)
class CountsQuestions(Grows):
    def max_rounds(self, step, state):
        state["rounds"] += 1
        return state["rounds"]


@attrs.frozen(kw_only=True)
class OverwritesLater(Grows):
    """Changes the old state where nobody looked: after a hundred steps."""

    def next_state(self, state, report):
        if report.step < 100:
            return super().next_state(state, report)
        state["rounds"] += 1
        return state


@attrs.frozen(kw_only=True)
class CountsByHorizon(Grows):
    """Keys that are numbers come back from JSON as text."""

    def next_state(self, state, report):
        return super().next_state(state, report) | {state["rounds"]: report.step}


@attrs.frozen(kw_only=True)
class WantsSuccess(Grows):
    def next_state(self, state, report):
        return {"rounds": state["rounds"] + (report.metrics["success"] > 0.4)}


@pytest.mark.parametrize(
    ("component", "checks"),
    [
        (HidesItsWindow(), {"test_goes_on_from_a_saved_state"}),
        (CountsQuestions(), {"test_max_rounds_leaves_the_state_alone"}),
        (OverwritesLater(), {"test_next_state_leaves_the_old_one_alone"}),
        (CountsByHorizon(), {"test_state_is_json"}),
        (WantsSuccess(), {"test_takes_a_step_without_episodes"}),
        (Grows(), set()),
    ],
    ids=class_name,
)
def test_a_planted_fault_is_found(component, checks):
    failed, _ = outcome(RoundSchedulerConformance, component)
    assert failed >= checks
    assert bool(failed) == bool(checks)
