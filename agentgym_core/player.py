"""The player: a training step's tasks, at that step's horizon."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from agentgym_core.config import StageConfig
from agentgym_core.contract import calling, check_horizon, check_selection
from agentgym_core.errors import Interrupted, RankError, TooManyFailures
from agentgym_core.handler import Policy
from agentgym_core.protocols import Opens, RoundScheduler, State, StepReport, TaskPool, TaskSampler
from agentgym_core.ranks import ALONE, Ranks, gathered
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.seeds import derive_seed
from agentgym_core.settings import TrainingConfig
from agentgym_core.types import Group, Sampling
from agentgym_core.wording import one_line

T = TypeVar("T")


def table_of(stage: StageConfig, policy: Policy, places: Mapping[str, Opens]) -> Table:
    """What a stage's episodes are played with, in training and in evaluation."""
    return Table(
        environments={block.name: block.component for block in stage.environments},
        places=places,
        agent=stage.agent,
        policy=policy,
        rewards=stage.reward,
        max_retries=stage.training.max_retries,
        max_call_seconds=stage.limits.max_call_seconds,
    )


@attrs.define(kw_only=True)
class Player:
    """Plays groups of episodes. What it plays depends on the step, the seed and its state only."""

    table: Table
    pools: tuple[TaskPool, ...]
    tasks: TaskSampler
    rounds: RoundScheduler
    training: TrainingConfig
    sampling: Sampling
    seed: int
    ranks: Ranks = ALONE
    tasks_state: State = None
    rounds_state: State = None
    _playing: asyncio.Future[tuple[Group, ...]] | None = attrs.field(default=None, init=False)
    _stopped: int = attrs.field(default=0, init=False)
    """The number of the signal that asked for it."""

    def __attrs_post_init__(self) -> None:
        self.tasks_state = self.tasks.initial_state()
        self.rounds_state = self.rounds.initial_state()

    def horizon(self, step: int) -> int:
        """Rounds that an episode of this step may take."""
        with calling(self.rounds, f"max_rounds at step {step}"):
            return check_horizon(self.rounds.max_rounds(step, self.rounds_state))

    async def groups(
        self, step: int, *, refill: int = 0, num_tasks: int | None = None
    ) -> tuple[Group, ...]:
        """Play this step's tasks, `group_size` times each.

        Args:
            step: the training step.
            refill: 1, 2, … draws other tasks for the same step, in place of some that taught
                nothing.
            num_tasks: how many, by default `training.tasks_per_step`.

        Raises:
            TooManyFailures: more than `training.max_failed_fraction` of the episodes failed, even
                after being played anew.
        """
        num_tasks = num_tasks or self.training.tasks_per_step
        seed = derive_seed(self.seed, "refill", refill) if refill else self.seed
        with calling(self.tasks, f"select at step {step}"):
            chosen = self.tasks.select(
                self.pools, num_tasks, step=step, seed=seed, state=self.tasks_state
            )
            chosen = check_selection(chosen, self.pools, num_tasks)
        orders = [
            Attempts(
                environment=pool.environment,
                task=task,
                num=self.training.group_size,
                max_rounds=self.horizon(step),
                sampling=self.sampling,
                seed=derive_seed(seed, "train", step, index, pool.environment, task.id),
            )
            for index, (pool, task) in enumerate(chosen)
        ]
        groups = await self.play(orders)
        self._check_failures(groups)
        return groups

    async def play(
        self, orders: Sequence[Attempts], policy: Policy | None = None
    ) -> tuple[Group, ...]:
        """Play any orders, with the run's policy or another.

        Each rank plays its share of them, and is given all groups.

        Raises:
            Interrupted: `stop` was called, here or on another rank; no session is left open.
            RankError: another rank failed.
        """
        await self.go_on()
        groups: tuple[Group, ...] = ()
        error: Exception | None = None
        try:
            groups = await self._play_share(orders[self.ranks.rank :: self.ranks.size], policy)
        except Exception as own:  # the others must hear of it
            error = own
        told = _Told(groups=groups, stopped=self._stopped, error=one_line(error) if error else "")
        shares = await self._gather(told)
        if error is not None:
            raise error
        failed = [rank for rank, share in enumerate(shares) if share.error]
        if failed:
            raise RankError(f"rank {failed[0]} stopped: {shares[failed[0]].error}")
        _refuse_to_go_on(share.stopped for share in shares)
        size = self.ranks.size
        return tuple(shares[i % size].groups[i // size] for i in range(len(orders)))

    async def _play_share(
        self, orders: Sequence[Attempts], policy: Policy | None
    ) -> tuple[Group, ...]:
        """Play them here; what is left when `stop` is called does not count."""
        if self._stopped:
            return ()
        table = attrs.evolve(self.table, policy=policy) if policy else self.table
        playing = play_groups(table, orders, self.training.max_concurrent_episodes)
        self._playing = asyncio.ensure_future(playing)
        try:
            return await self._playing
        except asyncio.CancelledError:
            if self._stopped:
                return ()
            raise
        finally:
            self._playing.cancel()
            self._playing = None

    async def go_on(self) -> None:
        """Let a signal come through, also in stages that only learn.

        Raises:
            Interrupted: `stop` was called, here or on another rank.
        """
        await asyncio.sleep(0)
        _refuse_to_go_on(await self._gather(self._stopped))

    async def _gather(self, value: T) -> list[T]:
        return await gathered(self.ranks, value, self.table.progress.beat)

    def stop(self, number: int) -> None:
        """Cancel what is being played, and play nothing more: that signal asks for it."""
        self._stopped = number
        if self._playing is not None:
            self._playing.cancel()

    def advance(self, report: StepReport) -> None:
        """Let the schedules see what the step gave."""
        with calling(self.tasks, "next_state"):
            self.tasks_state = self.tasks.next_state(self.tasks_state, report)
        with calling(self.rounds, "next_state"):
            self.rounds_state = self.rounds.next_state(self.rounds_state, report)

    def state(self) -> dict[str, State]:
        """For the checkpoint."""
        return {"tasks_state": self.tasks_state, "rounds_state": self.rounds_state}

    def restore(self, state: Mapping[str, State]) -> None:
        """From the checkpoint."""
        self.tasks_state = state["tasks_state"]
        self.rounds_state = state["rounds_state"]

    def _check_failures(self, groups: tuple[Group, ...]) -> None:
        failures = [episode for group in groups for episode in group.failures]
        num = len(failures) + sum(len(group.episodes) for group in groups)
        if len(failures) > self.training.max_failed_fraction * num:
            last = failures[-1]
            raise TooManyFailures(
                f"{len(failures)} of {num} episodes failed, more than training."
                f"max_failed_fraction={self.training.max_failed_fraction:g} allows. The last: task "
                f"{last.task.id} of {last.environment}, {last.ending.value}: {last.error}. Mend "
                "that and give the same command again: it goes on from the last checkpoint"
            )


@attrs.frozen(kw_only=True)
class _Told:
    """What a rank tells the others of its share."""

    groups: tuple[Group, ...]
    stopped: int
    error: str


def _refuse_to_go_on(stopped: Iterable[int]) -> None:
    number = max(stopped)
    if number:
        raise Interrupted("the run was asked to stop", number)
