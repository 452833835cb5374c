"""The sessions of a server: by ids that cannot be guessed, each step applied once."""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

from agentgym_core.contract import check_observation, is_fault
from agentgym_core.errors import AgentGymError, EnvironmentFailure
from agentgym_core.protocols import Environment, Opens, Session
from agentgym_core.serving.process import CallTimeout, WorkerDied
from agentgym_core.serving.protocol import Json, observation_to_json
from agentgym_core.session import within
from agentgym_core.types import Task
from agentgym_core.wording import one_line, origin

T = TypeVar("T")

WAIT_SECONDS = 5.0
"""How long a request for a session waits for room before it is told that the server is full."""

GRACE_SECONDS = 5.0
"""A worker has the same deadline for a call, and is given so much longer to tell of it."""


class Refused(Exception):
    """A request that is answered with an error: what it is, and what would have been right."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


@attrs.define(eq=False)
class Seat:
    """One session, and where its episode stands."""

    id: str
    key: str
    """By which its client may ask for it again; empty if it gave none."""
    session: Session
    last_seen: float
    episode: int = -1
    """The client's number of the last reset."""
    step: int = 0
    """Steps that were applied since."""
    action: str | None = None
    """The last one."""
    observation: Json | None = None
    said: str = ""
    """The same as JSON text, written once."""
    broken: str = ""
    """Why it is of no use any more."""
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    @property
    def over(self) -> bool:
        """Whether its episode has ended."""
        seen = self.observation or {}
        return bool(seen.get("terminated") or seen.get("truncated"))


class Sessions:
    """All sessions of one environment, at most `capacity`."""

    def __init__(
        self,
        environment: Environment,
        place: Opens,
        *,
        capacity: int,
        idle_seconds: float,
        call_seconds: float,
    ) -> None:
        self.environment = environment
        self.place = place
        self.capacity = capacity
        self.idle_seconds = idle_seconds
        self.call_seconds = call_seconds
        self._seats: dict[str, Seat] = {}
        self._keys: dict[str, asyncio.Task[Seat]] = {}
        self._room = asyncio.Semaphore(capacity)
        self._seconds = call_seconds + (0 if place is environment else GRACE_SECONDS)

    def __len__(self) -> int:
        return len(self._seats)

    async def create(self, key: str) -> Seat:
        """A new session; a client that asks again with its key is given the same.

        Raises:
            Refused: there is no room, or the environment does not open.
        """
        if not key:
            return await self._create("")
        if key not in self._keys:
            self._keys[key] = asyncio.create_task(self._create(key))
        try:
            return await asyncio.shield(self._keys[key])
        except Refused:
            self._keys.pop(key, None)
            raise

    async def _create(self, key: str) -> Seat:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise Refused(
                429, "full", f"all {self.capacity} sessions are in use: try again, or close some"
            ) from None
        try:
            session = await self._call("open", self.place.open)
        except BaseException:
            self._room.release()
            raise
        name, now = secrets.token_urlsafe(24), time.monotonic()
        seat = Seat(id=name, key=key, session=session, last_seen=now)
        self._seats[seat.id] = seat
        return seat

    def find(self, session_id: str) -> Seat:
        """The session of that id.

        Raises:
            Refused: there is none.
        """
        seat = self._seats.get(session_id)
        if seat is None:
            raise Refused(404, "unknown-session", "no session has this id: it was closed, or never")
        seat.last_seen = time.monotonic()
        return seat

    async def reset(self, seat: Seat, task: Task, seed: int, episode: int | None) -> Seat:
        """Begin a task; a reset that is sent twice, with one number, is done once."""
        async with seat.lock:
            if episode is not None and episode == seat.episode and seat.observation is not None:
                return seat
            if episode is not None and episode < seat.episode:
                raise Refused(409, "old-episode", f"episode {seat.episode} has begun since")
            self._check_use(seat)
            seat.observation = None
            try:
                seen = await self._observe(seat, "reset", task, seed)
            except Refused as refused:
                if refused.kind == "environment-failed" and not seat.broken:
                    raise Refused(422, "task-refused", refused.message) from refused
                raise
            seat.episode = seat.episode + 1 if episode is None else episode
            seat.step, seat.action, seat.observation = 0, None, seen
            return seat

    async def step(self, seat: Seat, action: str, number: int | None) -> Seat:
        """Take an action; a step that is sent twice, with one number, is applied once."""
        async with seat.lock:
            if seat.observation is None:
                raise Refused(409, "no-episode", "no task is under way: POST /reset first")
            if number is not None and number == seat.step and seat.step > 0:
                if action == seat.action:
                    return seat
                raise Refused(409, "other-action", f"step {number} was another action")
            self._check_use(seat)
            if number is not None and number != seat.step + 1:
                raise Refused(
                    409, "wrong-step", f"step {number} came, and step {seat.step + 1} is next"
                )
            if seat.over:
                raise Refused(409, "episode-over", "the episode has ended: POST /reset to go on")
            seat.observation = await self._observe(seat, "step", action, breaks=True)
            seat.step += 1
            seat.action = action
            return seat

    async def ask(self, seat: Seat, call: str) -> Any:
        """`available_actions` or `expert_action`."""
        async with seat.lock:
            if seat.observation is None:
                raise Refused(409, "no-episode", "no task is under way: POST /reset first")
            self._check_use(seat)
            return await self._call(call, getattr(seat.session, call))

    async def close(self, session_id: str) -> bool:
        """Close a session; whether there was one."""
        seat = self._seats.pop(session_id, None)
        if seat is None:
            return False
        self._keys.pop(seat.key, None)
        seat.broken = "it was closed"
        try:
            await self._call("close", seat.session.close)
        except Refused:
            pass  # the environment's own affair: the session is gone for the client
        finally:
            self._room.release()
        return True

    async def collect(self) -> int:
        """Close the sessions that nobody has used for `idle_seconds`; returns how many."""
        before = time.monotonic() - self.idle_seconds
        idle = [
            seat.id
            for seat in self._seats.values()
            if seat.last_seen < before and not seat.lock.locked()
        ]
        for session_id in idle:
            await self.close(session_id)
        return len(idle)

    async def close_all(self) -> None:
        """At the end of the server."""
        await asyncio.gather(*(self.close(session_id) for session_id in list(self._seats)))

    def _check_use(self, seat: Seat) -> None:
        if seat.broken:
            raise Refused(409, "broken-session", f"the session cannot go on: {seat.broken}")

    async def _observe(self, seat: Seat, name: str, *arguments: Any, breaks: bool = False) -> Json:
        try:
            answer = await self._call(name, getattr(seat.session, name), *arguments)
            try:
                seen = observation_to_json(check_observation(self.environment, answer))
                seat.said = json.dumps(seen, allow_nan=False)
                return seen
            except (EnvironmentFailure, TypeError, ValueError) as error:
                raise Refused(500, "environment-failed", str(error)) from error
        except Refused as refused:
            if seat.id not in self._seats:
                raise Refused(404, "unknown-session", "the session was closed") from refused
            if breaks or refused.status in (503, 504):
                seat.broken = refused.message
            raise

    async def _call(self, name: str, call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """A call of the environment; whatever fails in it is told apart from a wrong request."""
        try:
            return await within(self._seconds, name, call, *arguments, limit="call_seconds")
        except CallTimeout as error:
            raise Refused(504, "environment-timeout", str(error)) from error
        except WorkerDied as error:
            raise Refused(503, "environment-died", str(error)) from error
        except AgentGymError as error:
            raise Refused(500, "environment-failed", one_line(error)) from error
        except BaseException as error:
            if not is_fault(error):
                raise
            message = f"{origin(self.environment)}: {name}: {type(error).__name__}: {error}"
            if isinstance(error, TimeoutError):
                raise Refused(504, "environment-timeout", message) from error
            raise Refused(500, "environment-failed", message) from error
