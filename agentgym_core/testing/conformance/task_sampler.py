"""The suite of task samplers."""

import json
from collections.abc import Sequence
from typing import ClassVar

from agentgym_core.protocols import State, StepReport, TaskPool, TaskSampler
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.types import Task


class TaskSamplerConformance(ComponentConformance):
    """What training relies on in every task sampler.

    Example:
        class TestHardestFirst(TaskSamplerConformance):
            sampler = HardestFirst()
    """

    kind: ClassVar[str] = "sampler"
    sampler: TaskSampler
    pools: ClassVar[Sequence[TaskPool]] = tuple(
        TaskPool(
            environment=name,
            weight=weight,
            tasks=tuple(Task(id=f"{name}_{n}", category=f"c{n % 3}") for n in range(7)),
        )
        for name, weight in (("near", 2.0), ("far", 1.0))
    )
    """The mix that is drawn from."""
    num_steps: ClassVar[int] = 20

    def test_gives_as_many_tasks_as_asked_for(self) -> None:
        """All of the pools that it is given."""
        for num_tasks in (1, 4, 9):
            for step, state in enumerate(self._states(num_tasks)):
                chosen = self._select(num_tasks, step, state)
                assert len(chosen) == num_tasks, f"step {step}: {len(chosen)} of {num_tasks} tasks"
                known = {(p.environment, task.id) for p in self.pools for task in p.tasks}
                assert set(chosen) <= known, f"step {step}: {set(chosen) - known} is in no pool"

    def test_select_is_a_pure_function(self) -> None:
        """A resumed run must go on with the very next task."""
        states = self._states(4)
        first = [self._select(4, step, state) for step, state in enumerate(states)]
        for step in reversed(range(self.num_steps)):
            assert self._select(4, step, states[step]) == first[step], (
                f"step {step} plays other tasks when it is asked again: keep what changes in the "
                "state"
            )

    def test_state_is_json(self) -> None:
        """It lies in the checkpoint."""
        for state in self._states(4):
            assert json.loads(json.dumps(state)) == state, f"state {state!r} does not survive JSON"

    def _select(self, num_tasks: int, step: int, state: State) -> list[tuple[str, str]]:
        chosen = self.sampler.select(self.pools, num_tasks, step=step, seed=5, state=state)
        return [(pool.environment, task.id) for pool, task in chosen]

    def _states(self, num_tasks: int) -> list[State]:
        states = [self.sampler.initial_state()]
        for step in range(self.num_steps - 1):
            report = StepReport(step=step, metrics={"success": 0.5})
            states.append(self.sampler.next_state(states[-1], report))
        return states
