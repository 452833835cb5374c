"""The suite of round schedulers."""

import copy
import json
from typing import ClassVar

from agentgym_core.protocols import RoundScheduler, State, StepReport
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
        for step, state in enumerate(self._states()[:20]):
            before = copy.deepcopy(state)
            first = self.scheduler.next_state(state, _report(step))
            assert state == before, "next_state changes the state it is given: return a new one"
            again = self.scheduler.next_state(state, _report(step))
            assert again == first, f"next_state of {state!r} is {first!r}, then {again!r}"

    def test_goes_on_from_a_saved_state(self) -> None:
        """A resumed run equals an uninterrupted one."""
        middle, horizons = self.num_steps // 2, self._horizons()
        state: State = json.loads(json.dumps(self._states()[middle]))
        for step in range(middle, self.num_steps):
            rounds = self.scheduler.max_rounds(step, state)
            expected = horizons[step]
            assert rounds == expected, (
                f"step {step}: {rounds} rounds after a resume, not {expected}"
            )
            state = self.scheduler.next_state(state, _report(step))

    def _states(self) -> list[State]:
        states = [self.scheduler.initial_state()]
        for step in range(self.num_steps):
            states.append(self.scheduler.next_state(states[-1], _report(step)))
        return states

    def _horizons(self) -> list[int]:
        states = self._states()
        return [self.scheduler.max_rounds(step, states[step]) for step in range(self.num_steps)]


def _report(step: int) -> StepReport:
    success = (step * 7 % 11) / 10
    return StepReport(
        step=step,
        metrics={"success": success, "reward": success, "episodes": 8.0, "rounds": 3.0},
    )
