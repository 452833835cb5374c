"""A server that AgentGym's own clients understand, for the five environments that they know."""

import contextlib
import logging
import math
from typing import Annotated, Any

import attrs
from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from agentgym_core.errors import FormatError
from agentgym_core.protocols import Environment
from agentgym_core.serving.dialects import Row, number_of, row_of
from agentgym_core.serving.guard import Guard
from agentgym_core.serving.protocol import Json, core_version, observation_from_json
from agentgym_core.serving.server import ServerSettings, TaskFinder, make_sessions, running
from agentgym_core.serving.sessions import Refused, Seat, Sessions
from agentgym_core.types import Observation, Task

log = logging.getLogger(__name__)

JsonBody = Annotated[Json | None, Body()]


@attrs.define(eq=False)
class Guest:
    """A session, as AgentGym's clients know it: by a number."""

    number: int
    seat: Seat
    task: Task | None = None
    opening: str = ""
    """What the task began with."""
    text: str = ""
    """What was answered last."""
    total: float = 0.0
    """Sum of the rewards since."""
    info: Json = attrs.field(factory=dict[str, Any])
    """Of every observation since; later ones have the last word."""
    said: Json = attrs.field(factory=dict[str, Any])
    """All that the last answer could be made of."""


def make_upstream_app(environment: Environment, name: str, settings: ServerSettings) -> FastAPI:
    """The server of an environment in AgentGym's dialect, as an ASGI app.

    Raises:
        ConfigError: AgentGym has no server for it.
    """
    row = row_of(name, "--dialect")
    sessions = make_sessions(environment, settings)
    app = FastAPI(
        title=f"{name}, as AgentGym served it",
        version=core_version(),
        lifespan=lambda _: running(sessions, log_idle),
    )
    app.add_middleware(Guard, token=settings.token)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Any) -> Response:
        status, body = row.error(request.url.path, error.message)
        return JSONResponse(body) if status == 200 else PlainTextResponse(body, status)

    guests = Guests(row, environment, sessions)
    _add_sessions(app, row, guests)
    _add_questions(app, row, guests)
    return app


def log_idle(num: int) -> None:
    """Sessions whose clients have gone."""
    if num:
        log.info("%d idle sessions were closed", num)


class Guests:
    """Sessions by number. Numbers count up from 0, and none is given twice."""

    def __init__(self, row: Row, environment: Environment, sessions: Sessions) -> None:
        self._row = row
        self._environment = environment
        self._sessions = sessions
        self._finder = TaskFinder(environment)
        self._guests: dict[int, Guest] = {}
        self._next = 0

    async def create(self, index: int | None) -> Guest:
        """A new session; where a create begins a task, with one under way if there is such a task.

        Args:
            index: the number of that task; None is the session's own.
        """
        seat = await self._sessions.create("")
        guest = Guest(number=self._next, seat=seat)
        self._next += 1
        self._guests[guest.number] = guest
        if self._row.begins:
            # Every client resets before it plays, so a task that the options leave out is no error.
            with contextlib.suppress(Refused):
                await self.reset(guest.number, guest.number if index is None else index, 0)
        return guest

    def find(self, number: int) -> Guest:
        """The session of that number.

        Raises:
            Refused: there is none, or none any more.
        """
        guest = self._guests.get(number)
        if guest is None:
            raise Refused(404, "unknown-session", f"no session has the number {number}")
        try:
            self._sessions.find(guest.seat.id)
        except Refused:
            del self._guests[number]
            raise
        return guest

    async def reset(self, number: int, index: int, seed: int) -> Guest:
        """Begin the task of that index."""
        guest = self.find(number)
        task = await self._task(index)
        seat = await self._sessions.reset(guest.seat, task, seed, None)
        guest.task, guest.total, guest.info = task, 0.0, {}
        seen = self._see(guest, seat)
        guest.opening = seen.text
        return guest

    async def step(self, number: int, text: str) -> Guest:
        """Take an action, or the one that a reply names, as the client sends it.

        A reply that names none leaves the world as it is, and is told why.
        """
        guest = self.find(number)
        under_way = guest.seat.observation is not None and not guest.seat.over
        if self._row.takes == "reply" and under_way:
            try:
                text = self._environment.action_format.parse(text)
            except FormatError as error:
                return self._tell(guest, Observation(messages=str(error)))
        self._see(guest, await self._sessions.step(guest.seat, text, None))
        return guest

    async def actions(self, guest: Guest) -> list[str]:
        """What could be done now."""
        return list(await self._sessions.ask(guest.seat, "available_actions"))

    async def close(self, number: int) -> bool:
        """Whether there was such a session."""
        guest = self._guests.pop(number, None)
        return guest is not None and await self._sessions.close(guest.seat.id)

    async def _task(self, index: int) -> Task:
        name = f"{self._row.use}_{index}"
        if (known := getattr(self._environment, "task", None)) is None:
            return await self._finder.find(name)
        try:
            return known(name)
        except ValueError as error:
            raise Refused(422, "unknown-task", str(error)) from error

    def _see(self, guest: Guest, seat: Seat) -> Observation:
        seen = observation_from_json(seat.observation or {})
        if not math.isfinite(seen.reward):
            raise Refused(500, "environment-failed", f"the reward is {seen.reward}")
        guest.total += seen.reward
        guest.info = {**guest.info, **seen.info}
        self._tell(guest, seen)
        return seen

    def _tell(self, guest: Guest, seen: Observation) -> Guest:
        points, text = self._row.points, seen.text
        ended = guest.seat.over
        score = guest.info.get("score", guest.total * points)
        told = {field: guest.info.get(key, "") for field, key in self._row.info.items()}
        if guest.task is not None and "task_name" in told:
            told["task_name"] = told["task_name"] or guest.task.category
            told["var_num"] = guest.info.get("variation", number_of(self._row.use, guest.task.id))
        if text.startswith(described := told.get("task_description", "")):
            # A client puts the description before the text, where ours has it already.
            text = text.removeprefix(described).lstrip("\n")
        guest.text = seen.text
        guest.said = {
            **told,
            "id": guest.number,
            "observation": text,
            "reward": round(seen.reward * points, 9),
            "score": score,
            "deleted": False,
            "done": ended,
            # Their clients look at this alone, so a limit ends an episode for them as well.
            "terminated": ended,
            "truncated": bool((guest.seat.observation or {}).get("truncated")),
            "info": None if self._row.created_bare else dict(seen.info),
        }
        return guest


def _add_sessions(app: FastAPI, row: Row, guests: Guests) -> None:
    @app.get("/")
    async def greet() -> Response:
        """That it is there, in the words by which clients know it."""
        return JSONResponse(row.greeting)

    @app.post("/create")
    async def create(body: JsonBody = None) -> Response:
        """Open a session."""
        index = None if row.create_with is None else _optional(body or {}, "id")
        guest = await guests.create(index)
        if row.created_bare:
            return JSONResponse(guest.number)
        begun = {"observation": guest.text, "done": False, "reward": 0}
        return JSONResponse({row.session: guest.number, **(begun if row.begins else {})})

    @app.post("/reset")
    async def reset(body: JsonBody = None) -> Response:
        """Begin a task by its number."""
        body = body or {}
        # Where a create begins a task, a reset need not name one.
        index = _optional(body, row.index) if row.begins else _whole(body, row.index)
        seed = (_optional(body, "seed") or 0) if "seed" in row.reset_with else 0
        guest = await guests.reset(_whole(body, row.session), index or 0, seed)
        return JSONResponse(_picked(guest, row.opening) if row.opening else guest.text)

    @app.post("/step")
    async def step(body: JsonBody = None) -> Response:
        """Take an action."""
        body = body or {}
        action = body.get("action")
        if not isinstance(action, str):
            raise HTTPException(422, "action: expected a text")
        guest = await guests.step(_whole(body, row.session), action)
        return JSONResponse(_picked(guest, row.answer))

    @app.post("/close")
    async def close(body: JsonBody = None) -> Response:
        """Close a session."""
        closed = await guests.close(_whole(body or {}, row.session))
        return JSONResponse(closed if row.closed is None else dict(row.closed))


def _add_questions(app: FastAPI, row: Row, guests: Guests) -> None:
    def asked(request: Request) -> Guest:
        return guests.find(_whole(dict(request.query_params), row.session))

    @app.get("/observation")
    async def observation(request: Request) -> Response:
        """What the policy sees now."""
        guest = asked(request)
        if guest.task is None:
            raise Refused(409, "no-episode", "no task is under way: reset it first")
        if row.observed:
            return JSONResponse(_picked(guest, row.observed))
        return JSONResponse(guest.opening if row.observes_opening else guest.text)

    for extra in row.extras:

        async def answer(request: Request, extra: str = extra) -> Response:
            guest = asked(request)
            if extra == "action_hint":
                actions = await guests.actions(guest)
                return JSONResponse({"possible_actions": actions, "possible_objects": []})
            if extra == "detail":
                fields = (*row.answer, "deleted") if guest.said else ()
                return JSONResponse(_picked(guest, fields))
            return JSONResponse({extra: guest.said.get(extra, "")})

        app.get(f"/{extra}")(answer)


def _picked(guest: Guest, fields: tuple[str, ...]) -> Json:
    return {field: guest.said[field] for field in fields}


def _optional(body: Json, key: str) -> int | None:
    return None if body.get(key) is None else _whole(body, key)


def _whole(body: Json, key: str) -> int:
    """A number out of a body or an address.

    Raises:
        HTTPException: it is none, as AgentGym's servers would say.
    """
    value = body.get(key)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise HTTPException(422, f"{key}: expected a whole number, got {value!r}")
    return value
