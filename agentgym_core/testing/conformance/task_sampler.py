"""The suite of task samplers."""

import copy
import json
from collections.abc import Sequence
from typing import ClassVar

import attrs

from agentgym_core.protocols import State, StepReport, TaskPool, TaskSampler
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.testing.conformance.reward import make_episodes
from agentgym_core.types import Group, Task

Chosen = list[tuple[str, str]]
"""Environment and id of each task."""


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
        known = {(pool.environment, task.id) for pool in self.pools for task in pool.tasks}
        for num_tasks in (1, 4, 9):
            for step, (_, chosen) in enumerate(self._run(num_tasks)):
                assert len(chosen) == num_tasks, f"step {step}: {len(chosen)} of {num_tasks} tasks"
                assert set(chosen) <= known, f"step {step}: {set(chosen) - known} is in no pool"

    def test_select_is_a_pure_function(self) -> None:
        """A resumed run must go on with the very next task."""
        for step, (state, chosen) in reversed([*enumerate(self._run())]):
            assert self._select(step, state) == chosen, (
                f"step {step} plays other tasks when it is asked again: keep what changes in the "
                "state"
            )

    def test_state_is_json(self) -> None:
        """It lies in the checkpoint."""
        for state, _ in self._run():
            assert json.loads(json.dumps(state)) == state, f"state {state!r} does not survive JSON"

    def test_next_state_leaves_the_old_one_alone(self) -> None:
        """The old state may be in a checkpoint that is being written."""
        for step, (state, chosen) in enumerate(self._run()):
            before = copy.deepcopy(state)
            first = self.sampler.next_state(state, _report(step, chosen))
            assert state == before, "next_state changes the state it is given: return a new one"
            again = self.sampler.next_state(state, _report(step, chosen))
            assert again == first, f"next_state of {state!r} is {first!r}, then {again!r}"

    def test_goes_on_from_a_saved_state(self) -> None:
        """A resumed run equals an uninterrupted one."""
        run, middle = self._run(), self.num_steps // 2
        state: State = json.loads(json.dumps(run[middle][0]))
        for step in range(middle, self.num_steps):
            chosen = self._select(step, state)
            assert chosen == run[step][1], (
                f"step {step} plays other tasks after a resume: keep what changes in the state"
            )
            state = self.sampler.next_state(state, _report(step, chosen))

    def _run(self, num_tasks: int = 4) -> list[tuple[State, Chosen]]:
        """The state before each step of a run, and the tasks of the step."""
        state, run = self.sampler.initial_state(), list[tuple[State, Chosen]]()
        for step in range(self.num_steps):
            run.append((state, self._select(step, state, num_tasks)))
            state = self.sampler.next_state(copy.deepcopy(state), _report(step, run[-1][1]))
        return run

    def _select(self, step: int, state: State, num_tasks: int = 4) -> Chosen:
        chosen = self.sampler.select(self.pools, num_tasks, step=step, seed=5, state=state)
        return [(pool.environment, task.id) for pool, task in chosen]


def _report(step: int, chosen: Chosen) -> StepReport:
    """Of the tasks that a step selected, some of which succeed more often than others."""
    won, lost = make_episodes()[:2]
    groups: list[Group] = []
    for environment, name in chosen:
        task, num_won = Task(id=name), ord(name[-1]) % 5
        episodes = [attrs.evolve(won if n < num_won else lost, task=task) for n in range(4)]
        groups.append(Group(task=task, environment=environment, episodes=tuple(episodes)))
    return StepReport(step=step, metrics={"success": 0.5}, groups=tuple(groups))
