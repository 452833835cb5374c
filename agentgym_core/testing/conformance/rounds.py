"""The suite of round schedulers."""

import copy
import json
from typing import ClassVar

from agentgym_core.protocols import RoundScheduler, State, StepReport
from agentgym_core.structure import structure, unstructure
from agentgym_core.testing.conformance.component import ComponentConformance


class RoundSchedulerConformance(ComponentConformance):
    """What training relies on in every round scheduler.

    Example:
        class TestDoubling(RoundSchedulerConformance):
            scheduler = Doubling(first=4)
    """

    kind: ClassVar[str] = "scheduler"
    scheduler: RoundScheduler
    num_steps: ClassVar[int] = 400

    def test_horizons_are_positive_whole_numbers(self) -> None:
        """An episode takes at least one action."""
        for step, rounds in enumerate(self._horizons()):
            assert type(rounds) is int, f"step {step}: max_rounds is {rounds!r}, not an int"
            assert rounds >= 1, f"step {step}: max_rounds is {rounds}, expected at least 1"

    def test_max_rounds_is_a_pure_function(self) -> None:
        """A resumed run asks for any step, in any order."""
        states = self._states()
        forward = self._horizons()
        for step in reversed(range(self.num_steps)):
            rounds = self.scheduler.max_rounds(step, states[step])
            assert rounds == forward[step], (
                f"step {step} has {forward[step]} rounds when asked in order and {rounds} when "
                "asked again: keep what changes in the state, not in the component"
            )

    def test_state_is_json(self) -> None:
        """It lies in the checkpoint."""
        for state in self._states():
            assert json.loads(json.dumps(state)) == state, f"state {state!r} does not survive JSON"

    def test_next_state_leaves_the_old_one_alone(self) -> None:
        """The old state may be in a checkpoint that is being written."""
        for step, state in enumerate(self._states()):
            before = copy.deepcopy(state)
            first = self.scheduler.next_state(state, _report(step))
            assert state == before, "next_state changes the state it is given: return a new one"
            again = self.scheduler.next_state(state, _report(step))
            assert again == first, f"next_state of {state!r} is {first!r}, then {again!r}"

    def test_max_rounds_leaves_the_state_alone(self) -> None:
        """It is asked more than once in a step."""
        for step, state in enumerate(self._states()):
            before = copy.deepcopy(state)
            self.scheduler.max_rounds(step, state)
            assert state == before, (
                f"max_rounds changes the state, from {before!r} to {state!r}: only next_state "
                "gives another"
            )

    def test_goes_on_from_a_saved_state(self) -> None:
        """A resumed run, whose scheduler is built anew, equals an uninterrupted one."""
        states, horizons = self._states(), self._horizons()
        for stop in (1, self.num_steps // 3, self.num_steps // 2, self.num_steps - 1):
            scheduler = structure(type(self.scheduler), unstructure(self.scheduler), self.kind)
            state: State = json.loads(json.dumps(states[stop]))
            for step in range(stop, self.num_steps):
                rounds = scheduler.max_rounds(step, state)
                expected = horizons[step]
                assert rounds == expected, (
                    f"step {step}: {rounds} rounds after a resume at step {stop}, not {expected}: "
                    "keep what changes in the state, not in the component"
                )
                state = scheduler.next_state(state, _report(step))

    def test_takes_a_step_without_episodes(self) -> None:
        """All of them may fail for other reasons than the policy, and then there is no success."""
        report = StepReport(step=0, metrics={"episodes": 0.0, "dropped": 1.0})
        try:
            self.scheduler.next_state(self.scheduler.initial_state(), report)
        except Exception as error:
            raise AssertionError(
                f"next_state of a step that played nothing to an end raises {error!r}: such a step "
                "has no `success`; return the state as it is"
            ) from error

    def _states(self) -> list[State]:
        states = [self.scheduler.initial_state()]
        for step in range(self.num_steps):
            states.append(self.scheduler.next_state(states[-1], _report(step)))
        return states

    def _horizons(self) -> list[int]:
        states = self._states()
        return [self.scheduler.max_rounds(step, states[step]) for step in range(self.num_steps)]


def _report(step: int) -> StepReport:
    """Success that rises for 150 steps and stays, with noise, so that what adapts has cause to."""
    success = min(step, 150) / 300 + (step * 7 % 11) / 50
    return StepReport(
        step=step,
        metrics={
            "success": success,
            "reward": success,
            "episodes": 8.0,
            "rounds": 3.0,
            "horizon_cut": 1.0 - success,
        },
    )
