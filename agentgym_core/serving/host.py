"""The host: where sessions of one environment run, in a run and behind a server.

A session stays with one worker. A worker that dies is replaced, and its sessions are restored:
reset, the recorded actions again, and the observations must be those that the policy saw. A call
that hangs costs its session alone; the others of its worker are restored.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import attrs

from agentgym_core.errors import EnvironmentFailure
from agentgym_core.protocols import Session
from agentgym_core.serving.process import Blueprint, WorkerDied, WorkerProcess
from agentgym_core.serving.protocol import Json, observation_from_json, task_to_json
from agentgym_core.types import Observation, Task

_GRACE_SECONDS = 2.0
"""How long a session that is closed waits for its last call."""


def _positive(_: Any, field: "attrs.Attribute[Any]", value: float | None) -> None:
    if value is not None and not value > 0:
        raise ValueError(f"{field.name} must be above 0, got {value}")


@attrs.frozen(kw_only=True)
class HostSettings:
    """The `host` block of an environment: the processes that its sessions run in."""

    workers: int | None = attrs.field(default=None, validator=_positive)
    """Processes at most; null is one for each core. A number lets an environment that could run
    in this process run in workers too."""
    sessions_per_worker: int | None = attrs.field(default=None, validator=_positive)
    """Sessions in one process at most; null is what the environment declares."""
    recycle_after: int = attrs.field(default=1000, validator=_positive)
    """A worker is replaced after so many sessions."""
    max_memory_mb: float | None = attrs.field(default=None, validator=_positive)
    """A worker whose resident memory, with that of its children, is above this is replaced when
    its sessions are closed."""
    start_seconds: float = attrs.field(default=60.0, validator=_positive)
    """How long a worker may take to come up."""

    @property
    def num_workers(self) -> int:
        """Processes at most."""
        if self.workers is not None:
            return self.workers
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return max(1, (cores or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@attrs.define(eq=False)
class Slot:
    """A place for a worker: the process changes, the sessions stay."""

    process: WorkerProcess | None = None
    num_sessions: int = 0
    retiring: bool = False
    """No new session; when the last one is closed, the worker is replaced."""
    starting: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    num_started: int = 0

    @property
    def alive(self) -> bool:
        """Whether it has a process that was not seen dying."""
        return self.process is not None and not self.process.dead


class Host:
    """Workers of one environment. Opened with `async with`, which ends them all."""

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        sessions_per_worker: int,
        settings: HostSettings | None = None,
        call_seconds: float = 300.0,
    ) -> None:
        self.blueprint = blueprint
        self.settings = settings or HostSettings()
        self.call_seconds = call_seconds
        self.sessions_per_worker = self.settings.sessions_per_worker or sessions_per_worker
        self.slots = [Slot() for _ in range(self.settings.num_workers)]
        self.num_restored = 0
        self._room = asyncio.Condition()
        self._numbers = 0
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def capacity(self) -> int:
        """Sessions that may be open at once."""
        return len(self.slots) * self.sessions_per_worker

    async def __aenter__(self) -> "Host":
        return self

    async def __aexit__(self, *_: object) -> None:
        processes = [slot.process for slot in self.slots if slot.process is not None]
        await asyncio.gather(*(process.stop() for process in processes), *self._ending)

    async def open(self) -> "HostedSession":
        """A session in one of the workers; waits while all are full.

        Raises:
            EnvironmentFailure: a worker does not come up, or the environment cannot open.
        """
        async with self._room:
            while (slot := self._free_slot()) is None:
                await self._room.wait()
            slot.num_sessions += 1
        self._numbers += 1
        session = HostedSession(self, slot, self._numbers)
        try:
            await session.begin()
        except BaseException:
            await session.close()
            raise
        return session

    def _free_slot(self) -> Slot | None:
        """The one with the fewest sessions, and rather one that runs already."""
        free = [
            slot
            for slot in self.slots
            if slot.num_sessions < self.sessions_per_worker and not slot.retiring
        ]
        return min(free, key=lambda slot: (slot.num_sessions, not slot.alive), default=None)

    async def process_of(self, slot: Slot) -> WorkerProcess:
        """The slot's worker, started if it has none or its own is dead."""
        async with slot.starting:
            if slot.process is None or slot.process.dead:
                if slot.process is not None:
                    self._end(slot.process)
                slot.process = await WorkerProcess.start(
                    self.blueprint, self.settings.start_seconds
                )
                slot.num_started += 1
                slot.retiring = False
            return slot.process

    async def release(self, slot: Slot) -> None:
        """A session of the slot is closed."""
        async with self._room:
            slot.num_sessions -= 1
            if slot.alive and self._is_worn(slot.process):
                slot.retiring = True
            if slot.retiring and slot.num_sessions == 0:
                process, slot.process, slot.retiring = slot.process, None, False
                if process is not None:
                    self._end(process)
            self._room.notify_all()

    def _is_worn(self, process: WorkerProcess | None) -> bool:
        assert process is not None
        if process.num_opened >= self.settings.recycle_after:
            return True
        most = self.settings.max_memory_mb
        return most is not None and process.memory() > most

    def _end(self, process: WorkerProcess) -> None:
        """In the background."""
        task = asyncio.create_task(process.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class HostedSession(Session):
    """A session in a worker. One call at a time."""

    def __init__(self, host: Host, slot: Slot, number: int) -> None:
        self._host = host
        self._slot = slot
        self._number = number
        self._process: WorkerProcess | None = None
        self._task: tuple[Json, int] | None = None
        self._actions: list[str] = []
        self._seen: list[Json] = []
        self._restorable = True
        self._calling: asyncio.Future[Any] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Open it in its slot's worker; once more if that dies of it."""
        try:
            await self._open()
        except WorkerDied:
            await self._open()

    async def _open(self) -> None:
        self._process = await self._host.process_of(self._slot)
        self._process.num_opened += 1
        await self._call("open")

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task, in a fresh worker if this one dies."""
        self._task, self._actions, self._seen = None, [], []
        self._restorable = True
        sent = task_to_json(task)
        seen = await self._lasting("reset", task=sent, seed=seed)
        self._task, self._seen = (sent, seed), [seen]
        return observation_from_json(seen)

    async def step(self, action: str) -> Observation:
        """Take an action; the episode is restored first if the worker has died."""
        seen = await self._lasting("step", action=action)
        self._actions.append(action)
        self._seen.append(seen)
        return observation_from_json(seen)

    async def available_actions(self) -> Sequence[str]:
        """See `Session`."""
        return await self._lasting("available_actions")

    async def expert_action(self) -> str | None:
        """See `Session`."""
        return await self._lasting("expert_action")

    async def close(self) -> None:
        """Free its place. A worker that does not come back from a call of it is killed."""
        if self._closed:
            return
        self._closed = True
        try:
            process = self._process
            if self._calling is not None:
                await asyncio.wait({self._calling}, timeout=_GRACE_SECONDS)
            if process is None or process.dead:
                return
            if self._calling is not None and not self._calling.done():
                process.kill()
            else:
                await self._call("close")
        finally:
            await asyncio.shield(self._host.release(self._slot))

    async def _lasting(self, call: str, **arguments: Any) -> Any:
        """A call that outlives one death of the worker in an episode."""
        if self._closed:
            raise EnvironmentFailure("the session is closed")
        try:
            return await self._call(call, **arguments)
        except WorkerDied:
            if self._closed or not self._restorable:
                raise
            self._restorable = False
            await self._restore()
            return await self._call(call, **arguments)

    async def _restore(self) -> None:
        """A fresh worker, reset, the recorded actions again.

        Raises:
            EnvironmentFailure: it answers otherwise than before.
        """
        self._host.num_restored += 1
        await self._open()
        if self._task is None:
            return
        task, seed = self._task
        again = await self._call("reset", task=task, seed=seed)
        for place, (action, seen) in enumerate(zip([*self._actions, ""], self._seen, strict=True)):
            if again != seen:
                raise EnvironmentFailure(
                    f"{self._host.blueprint.use}: a worker died, and the episode cannot be "
                    f"restored: observation {place} of task {task['id']} is another one now"
                )
            if place < len(self._actions):
                again = await self._call("step", action=action)

    async def _call(self, call: str, **arguments: Any) -> Any:
        assert self._process is not None
        called = self._process.call(
            call, self._host.call_seconds, session=self._number, **arguments
        )
        # A caller may give up; the worker does not, and `close` must know.
        self._calling = asyncio.ensure_future(called)
        self._calling.add_done_callback(_heard)
        return await asyncio.shield(self._calling)


def _heard(answer: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is no reason to complain."""
    if not answer.cancelled():
        answer.exception()
