"""The task sampler `curriculum`: rather tasks that succeed now and then than always or never."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import attrs
import numpy as np

from agentgym_core.protocols import State, StepReport, TaskPool, TaskSampler
from agentgym_core.samplers import check_pools, shares
from agentgym_core.seeds import derive_seed
from agentgym_core.types import Task


def _is_share(_: Any, field: "attrs.Attribute[float]", value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{field.name} must be above 0 and at most 1, got {value:g}")


@attrs.frozen(kw_only=True)
class CurriculumTaskSampler(TaskSampler):
    """Draws tasks by how much their outcomes still differ.

    A task has an estimate p of its success: the share of successes when it is first played, and
    then (1 - learning) p + learning (share of successes). Its weight is

        floor + (1 - floor) 4 p (1 - p)

    which is 1 where every second attempt succeeds, and `floor` where all do or none: in a group
    whose attempts end alike there is nothing to compare.

    Of the n tasks that an environment gives to a step, ceil(`unseen` n) are ones that have not been
    played, drawn evenly, as long as there are such; the others are drawn by weight among those that
    have. So a pool of N tasks has been seen whole after N / ceil(`unseen` n) steps. No task comes
    twice in a step, unless its pool is smaller than its share. Between environments the weights
    decide, as in `uniform`.

    The state holds the estimates, by environment and task id.
    """

    unseen: float = attrs.field(default=0.5, validator=_is_share)
    """Share of the draws that goes to tasks which have not been played."""
    floor: float = attrs.field(default=0.1, validator=_is_share)
    """Weight of a task that always or never succeeds, so that it comes back now and then."""
    learning: float = attrs.field(default=0.5, validator=_is_share)
    """Share of the newest group in a task's estimate."""

    def initial_state(self) -> State:
        """Nothing is known of any task."""
        return {}

    def select(
        self, pools: Sequence[TaskPool], num_tasks: int, *, step: int, seed: int, state: State
    ) -> tuple[tuple[TaskPool, Task], ...]:
        """The tasks of a step, pool by pool."""
        check_pools(pools)
        chosen: list[tuple[TaskPool, Task]] = []
        for pool, (first, end) in zip(pools, shares(pools, num_tasks, step), strict=True):
            draws = np.random.default_rng(derive_seed(seed, "tasks", pool.environment, step))
            estimates = state.get(pool.environment, {})
            whole, rest = divmod(end - first, len(pool.tasks))
            chosen += [(pool, task) for _ in range(whole) for task in pool.tasks]
            chosen += [
                (pool, pool.tasks[place]) for place in self._draw(pool, rest, estimates, draws)
            ]
        return tuple(chosen)

    def next_state(self, state: State, report: StepReport) -> State:
        """Take in the groups of a step; one whose episodes all failed tells nothing."""
        known: dict[str, dict[str, float]] = {name: dict(tasks) for name, tasks in state.items()}
        for group in report.groups:
            if not group.episodes:
                continue
            rate = sum(episode.success for episode in group.episodes) / len(group.episodes)
            estimates = known.setdefault(group.environment, {})
            old = estimates.get(group.task.id, rate)
            estimates[group.task.id] = old + self.learning * (rate - old)
        return known

    def _draw(
        self, pool: TaskPool, num: int, estimates: Mapping[str, float], draws: np.random.Generator
    ) -> list[int]:
        """Places of `num` different tasks."""
        unseen = [place for place, task in enumerate(pool.tasks) if task.id not in estimates]
        seen = [place for place, task in enumerate(pool.tasks) if task.id in estimates]
        num_unseen = min(len(unseen), max(ceil(self.unseen * num), num - len(seen)))
        weights = [self._weight(estimates[pool.tasks[place].id]) for place in seen]
        return [
            *_sample(unseen, [1.0] * len(unseen), num_unseen, draws),
            *_sample(seen, weights, num - num_unseen, draws),
        ]

    def _weight(self, success: float) -> float:
        return self.floor + (1 - self.floor) * 4 * success * (1 - success)


def _sample(
    places: Sequence[int], weights: Sequence[float], num: int, draws: np.random.Generator
) -> list[int]:
    """Weighted, without replacement: the largest u^(1/w) (Efraimidis and Spirakis, 2006)."""
    keys = np.log1p(-draws.random(len(places))) / np.asarray(weights)  # log u, for u in (0, 1]
    return [places[index] for index in np.argsort(-keys, kind="stable")[:num]]
