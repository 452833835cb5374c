"""The server: one environment over HTTP, with its own page of documentation at `/docs`."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, cast

import attrs
import prometheus_client
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from agentgym_core.contract import calling, corpus_of, tasks_of
from agentgym_core.errors import AgentGymError, EnvironmentFailure, FormatError
from agentgym_core.protocols import Environment
from agentgym_core.serving.bodies import (
    ERRORS,
    ActionBody,
    ActionsBody,
    ClosedBody,
    CreateBody,
    CreatedBody,
    IdBody,
    ParseBody,
    RenderBody,
    ResetBody,
    SeenBody,
    StepBody,
    TaskBody,
    TasksBody,
)
from agentgym_core.serving.guard import Guard, Meters, error_answer
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.places import place_of
from agentgym_core.serving.protocol import (
    PROTOCOL,
    Json,
    core_version,
    describe,
    info_to_json,
    task_to_json,
)
from agentgym_core.serving.sessions import Refused, Seat, Sessions
from agentgym_core.types import Task

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class ServerSettings:
    """How an environment is served."""

    workers: int | None = None
    """Processes; null runs what can run in the server's own process there."""
    max_sessions: int | None = None
    """Open at once; null is what the workers hold, or 1024 without workers."""
    idle_seconds: float = 1800.0
    """A session that nobody has used for so long is closed."""
    call_seconds: float = 300.0
    """Bounds one call of the environment."""
    token: str | None = attrs.field(default=None, repr=False)
    """What a client must show; null lets everybody in."""
    host: HostSettings = attrs.field(factory=HostSettings)


def make_app(environment: Environment, name: str, settings: ServerSettings) -> FastAPI:
    """The server of an environment, as an ASGI app.

    Raises:
        ComponentError: the environment cannot say what it is.
    """
    info = info_to_json(describe(environment, name))
    info["core"] = core_version()
    sessions = make_sessions(environment, settings)
    meters = Meters(sessions.__len__, lambda: getattr(sessions.place, "num_restored", 0))
    app = FastAPI(
        title=f"AgentGym: {name}",
        version=info["version"] or "0",
        lifespan=lambda _: running(sessions, meters.collected.inc),
        responses=ERRORS,
    )
    app.add_middleware(Guard, token=settings.token)
    _add_errors(app, meters)
    _add_descriptions(app, environment, info, sessions, meters)
    _add_sessions(app, environment, sessions, meters)
    return app


def make_sessions(environment: Environment, settings: ServerSettings) -> Sessions:
    """Room for sessions of an environment, where it may run."""
    host = attrs.evolve(settings.host, workers=settings.workers or settings.host.workers)
    place = place_of(environment, host, settings.call_seconds)
    return Sessions(
        environment,
        place or environment,
        capacity=settings.max_sessions or getattr(place, "capacity", 1024),
        idle_seconds=settings.idle_seconds,
        call_seconds=settings.call_seconds,
    )


async def _try_to_open(sessions: Sessions) -> None:
    """What cannot start is told at the start."""
    with calling(sessions.environment, "open", EnvironmentFailure):
        await (await sessions.place.open()).close()


@contextlib.asynccontextmanager
async def running(sessions: Sessions, count: Callable[[int], object]) -> AsyncGenerator[None]:
    """Keep sessions from the start of a server to its end, and count those that were left idle."""

    async def collect() -> None:
        while True:
            await asyncio.sleep(min(10.0, sessions.idle_seconds / 4))
            count(await sessions.collect())

    async with contextlib.AsyncExitStack() as stack:
        if sessions.place is not sessions.environment:
            await stack.enter_async_context(cast("Any", sessions.place))
        await _try_to_open(sessions)
        stack.push_async_callback(sessions.close_all)
        collecting = asyncio.create_task(collect())
        stack.callback(collecting.cancel)
        yield


def _add_errors(app: FastAPI, meters: Meters) -> None:
    @app.exception_handler(Refused)
    async def refused(_: Request, error: Any) -> Response:
        meters.errors.labels(error.kind).inc()
        if error.status >= 500:
            log.warning("%s: %s", error.kind, error.message)
        return error_answer(error.status, error.kind, error.message)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Any) -> Response:
        meters.errors.labels("invalid").inc()
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return error_answer(422, "invalid", f"{where}: {first['msg']}. See /docs")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: Any) -> Response:
        kinds = {404: "not-found", 405: "method-not-allowed"}
        kind = kinds.get(error.status_code, "invalid")
        return error_answer(error.status_code, kind, error.detail)


def _add_descriptions(
    app: FastAPI, environment: Environment, info: Json, sessions: Sessions, meters: Meters
) -> None:
    @app.get("/info")
    async def get_info() -> Response:
        """What this environment is: its options, tasks per split, how a reply names an action."""
        return JSONResponse(info)

    @app.get("/health")
    async def health() -> Response:
        """That it is there, and how full it is."""
        body = {"status": "ok", "sessions": len(sessions), "capacity": sessions.capacity}
        return JSONResponse({"protocol": PROTOCOL, **body})

    @app.get("/tasks", response_model=TasksBody)
    def tasks(
        split: str,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """The tasks of a split, in order."""
        if split not in environment.splits:
            known = ", ".join(environment.splits)
            raise Refused(404, "unknown-split", f"there is no split {split!r}: it has {known}")
        try:
            found = tasks_of(environment, split)
        except AgentGymError as error:
            raise Refused(404, "unknown-split", str(error)) from error
        listed = [task_to_json(task) for task in found[offset : offset + limit]]
        return JSONResponse({"split": split, "total": len(found), "tasks": listed})

    @app.get("/corpus")
    def corpus() -> Response:
        """Texts that hold every word of the world, for models from scratch."""
        return JSONResponse({"texts": list(corpus_of(environment))})

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return PlainTextResponse(prometheus_client.generate_latest(meters.registry))

    @app.post("/parse", response_model=ActionBody)
    async def parse(body: ParseBody) -> Response:
        """The action that a reply names."""
        try:
            return JSONResponse({"action": environment.action_format.parse(body.text)})
        except FormatError as error:
            raise Refused(422, "format", str(error)) from error

    @app.post("/render")
    async def render(body: RenderBody) -> Response:
        """A reply that names an action."""
        return JSONResponse({"text": environment.action_format.render(body.action, body.thought)})


def _add_sessions(
    app: FastAPI, environment: Environment, sessions: Sessions, meters: Meters
) -> None:
    tasks = TaskFinder(environment)

    async def timed(call: str, awaited: Awaitable[Any]) -> Any:
        start = time.perf_counter()
        try:
            return await awaited
        finally:
            meters.seconds.labels(call).observe(time.perf_counter() - start)

    @app.post("/create", response_model=CreatedBody)
    async def create(body: CreateBody | None = None) -> Response:
        """Open a session; waits a little for room."""
        seat = await timed("create", sessions.create(body.key if body else ""))
        return JSONResponse({"id": seat.id})

    @app.post("/reset", response_model=SeenBody)
    async def reset(body: ResetBody) -> Response:
        """Begin a task. The same task and seed give the same observations."""
        seat = sessions.find(body.id)
        task = await tasks.find(body.task)
        return _seen(await timed("reset", sessions.reset(seat, task, body.seed, body.episode)))

    @app.post("/step", response_model=SeenBody)
    async def step(body: StepBody) -> Response:
        """Take an action. Any text is one."""
        seat = sessions.find(body.id)
        return _seen(await timed("step", sessions.step(seat, body.action, body.step)))

    @app.post("/close", response_model=ClosedBody)
    async def close(body: IdBody) -> Response:
        """Close a session; closing it again is no error."""
        return JSONResponse({"closed": await sessions.close(body.id)})

    @app.get("/observation", response_model=SeenBody)
    async def observation(id: str) -> Response:
        """The last observation again."""
        seat = sessions.find(id)
        if seat.observation is None:
            raise Refused(409, "no-episode", "no task is under way: POST /reset first")
        return _seen(seat)

    @app.get("/available_actions", response_model=ActionsBody)
    async def available_actions(id: str) -> Response:
        """Actions that make sense now, if the environment lists them."""
        found = await timed("ask", sessions.ask(sessions.find(id), "available_actions"))
        return JSONResponse({"actions": list(found)})

    @app.get("/expert_action", response_model=ActionBody)
    async def expert_action(id: str) -> Response:
        """What the environment's expert would do now; null if it knows nothing."""
        found = await timed("ask", sessions.ask(sessions.find(id), "expert_action"))
        return JSONResponse({"action": found})


def _seen(seat: Seat) -> Response:
    body = f'{{"step": {seat.step}, "observation": {seat.said}}}'
    return Response(body, media_type="application/json")


class TaskFinder:
    """Tasks by their ids, which a person may write in place of a whole task."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._by_id: dict[str, Task] | None = None

    async def find(self, told: TaskBody | str) -> Task:
        """The task that is meant.

        Raises:
            Refused: there is none of that id.
        """
        if isinstance(told, TaskBody):
            return Task(id=told.id, category=told.category, data=told.data)
        if self._by_id is None:
            self._by_id = await asyncio.to_thread(self._list)
        if told not in self._by_id:
            raise Refused(422, "unknown-task", f"no task is called {told!r}: GET /tasks lists them")
        return self._by_id[told]

    def _list(self) -> dict[str, Task]:
        found: dict[str, Task] = {}
        for split in self._environment.splits:
            with contextlib.suppress(AgentGymError):  # the options may leave a split empty
                found |= {task.id: task for task in tasks_of(self._environment, split)}
        return found
