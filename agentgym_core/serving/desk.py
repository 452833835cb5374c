"""A worker that answers questions about its environment, for code that cannot await."""

import asyncio
import atexit
import functools
import json
import threading
from collections.abc import Mapping
from typing import Any

from agentgym_core.serving.process import Blueprint, WorkerProcess

START_SECONDS = 120.0
ANSWER_SECONDS = 600.0
"""The first listing of tasks may take long."""


class Desk:
    """One worker, started when it is first asked, and anew if it has died. Safe in any thread."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._worker: WorkerProcess | None = None
        self._hello: Mapping[str, Any] = {}
        self._starting = asyncio.Lock()

    def hello(self) -> Any:
        """What it says of itself: `info`, `runs_in`, `sessions_per_process`, `splits`."""
        if not self._hello:  # an environment is asked in every turn of an episode
            self._hello = _wait_for(self._running()).hello
        return self._hello

    def ask(self, call: str, **arguments: Any) -> Any:
        """Something that needs no session, such as `tasks`.

        Raises:
            ConfigError: the interpreter or its environment cannot be used.
            EnvironmentFailure: the environment raised.
        """
        return _wait_for(self._ask(call, **arguments))

    async def ask_soon(self, call: str, **arguments: Any) -> Any:
        """The same, awaited."""
        future = asyncio.run_coroutine_threadsafe(self._ask(call, **arguments), _loop())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the worker, also while the interpreter shuts down. Asked again, it starts anew."""
        worker, self._worker = self._worker, None
        if worker is not None:
            _loop().call_soon_threadsafe(worker.kill)
            worker.gone.wait(10.0)

    async def _ask(self, call: str, **arguments: Any) -> Any:
        return await (await self._running()).call(call, ANSWER_SECONDS, **arguments)

    async def _running(self) -> WorkerProcess:
        async with self._starting:
            if self._worker is None or self._worker.dead:
                self._worker = await WorkerProcess.start(self._blueprint, START_SECONDS)
            return self._worker


def desk_of(blueprint: Blueprint) -> Desk:
    """The one desk of that blueprint in this process; it ends with the process."""
    return _desk(json.dumps(blueprint.to_json(), sort_keys=True), blueprint.python)


@functools.cache
def _desk(blueprint: str, python: str | None) -> Desk:
    fields = json.loads(blueprint)
    del fields["sys_path"]
    desk = Desk(Blueprint(**fields, python=python))
    atexit.register(desk.close)
    return desk


def _wait_for(call: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(call, _loop()).result()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """An event loop in a thread that lives as long as the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="agentgym-desk", daemon=True).start()
    return loop
