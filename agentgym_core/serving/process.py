"""A worker as its parent sees it."""

import asyncio
import collections
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import attrs
import psutil

from agentgym_core.errors import ConfigError, EnvironmentFailure, FormatError
from agentgym_core.protocols import Environment
from agentgym_core.serving.protocol import Json
from agentgym_core.serving.worker import frame, receive
from agentgym_core.structure import unstructure

_GRACE_SECONDS = 2.0
"""How long a worker may take to close its sessions when it is asked to end."""


class WorkerDied(EnvironmentFailure):
    """The worker's process is gone."""


class CallTimeout(EnvironmentFailure):
    """A call took longer than it may; the worker was killed for it."""


@attrs.frozen(kw_only=True)
class Blueprint:
    """What a worker builds its environment of."""

    use: str
    """The registered name, or that of the class."""
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    import_string: str | None = None
    """`module:Class`; null builds the one that is registered under `use` over there."""
    python: str | None = None
    """Another interpreter; null is this one."""
    path: str = "environment"
    """Where the block stands in the YAML file, for errors."""

    @classmethod
    def of(cls, environment: Environment) -> "Blueprint":
        """To build an equal one of its class.

        Raises:
            ConfigError: no other process can import the class.
        """
        kind = type(environment)
        if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
            raise ConfigError(
                f"{kind.__qualname__} is to run in worker processes, which cannot import it from a "
                "script, a notebook or a function: put the class into a module"
            )
        return cls(
            use=kind.__name__,
            options=unstructure(environment),
            import_string=f"{kind.__module__}:{kind.__qualname__}",
        )

    def to_json(self) -> Json:
        """The handshake."""
        return {
            "use": self.use,
            "options": dict(self.options),
            "import_string": self.import_string,
            "path": self.path,
            # What is importable here, in a notebook or a test, is so in a worker too.
            "sys_path": None if self.python else sys.path,
        }

    def command(self, *descriptors: int) -> list[str]:
        """Start a worker over these file descriptors."""
        # Another interpreter has its own core: not one that lies in the working directory.
        start = [self.python, "-P"] if self.python else [sys.executable]
        return [*start, "-m", "agentgym_core.serving.supervisor", *map(str, descriptors)]


class WorkerProcess:
    """A running worker. `call` is safe to use from many tasks at once."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.hello: Mapping[str, Any] = {}
        """What it said of itself: its `info`, `pid`, `runs_in`, `splits` and so on."""
        self.num_opened = 0
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._last_words: collections.deque[str] = collections.deque(maxlen=20)
        self.gone = threading.Event()
        """Set when the process has ended and was reaped."""
        self.dead = False

    @classmethod
    async def start(cls, blueprint: Blueprint, seconds: float) -> "WorkerProcess":
        """Start a worker and let it build its environment.

        Raises:
            ConfigError: the environment refuses its options, or the interpreter cannot be used.
            EnvironmentFailure: it does not come up within that many seconds.
        """
        worker = cls(blueprint)
        try:
            await worker._start(seconds)
        except BaseException:
            worker.kill()
            raise
        return worker

    async def _start(self, seconds: float) -> None:
        ours, theirs = socket.socketpair()
        life, self._life = os.pipe()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: ASYNC220, it returns in milliseconds
                    self.blueprint.command(life, theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(life, theirs.fileno()),
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise ConfigError(
                    f"{self.blueprint.path}.python: {self.blueprint.python} cannot be started: "
                    f"{error.strerror}"
                ) from error
            finally:
                os.close(life)
        for work in (self._listen, self._reap):
            threading.Thread(target=work, name="agentgym-worker", daemon=True).start()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._writer.write(frame(self.blueprint.to_json()))
        try:
            async with asyncio.timeout(seconds):
                hello = await receive(reader)
        except TimeoutError:
            raise EnvironmentFailure(
                f"{self.blueprint.use}: a worker did not come up within {seconds:g} s. "
                f"{self._obituary()}"
            ) from None
        if hello is None:
            await asyncio.to_thread(self.gone.wait, _GRACE_SECONDS)
            raise self._no_worker()
        if "error" in hello:
            told = hello["error"]
            if self.blueprint.python:
                told = {**told, "message": f"{told['message']} (in {self.blueprint.python})"}
            raise _error(told)
        self.hello = hello
        self._reading = asyncio.create_task(self._read(reader))

    async def call(self, call: str, seconds: float, **arguments: Any) -> Any:
        """Let the worker do something, within that many seconds.

        Raises:
            CallTimeout: it took longer. The worker is killed.
            WorkerDied: it is dead.
            EnvironmentFailure: the environment raised.
        """
        if self.dead:
            raise WorkerDied(self._obituary())
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        self._writer.write(frame({"number": number, "call": call, "arguments": arguments}))
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await answer
        except TimeoutError:
            if not deadline.expired():
                raise
            self.kill()
            raise CallTimeout(
                f"{self.blueprint.use}: it did not answer {call} within {seconds:g} s; its worker "
                "was killed"
            ) from None
        finally:
            self._pending.pop(number, None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (message := await receive(reader)) is not None:
            answer = self._pending.get(message["number"])
            if answer is None or answer.done():
                continue  # nobody waits for it any more
            if "error" in message:
                answer.set_exception(_error(message["error"]))
            else:
                answer.set_result(message["value"])
        self.kill()

    def kill(self) -> None:
        """End the process and all that it started, now. Whoever waits for it hears of it."""
        if not self.dead:
            self.dead = True
            if hasattr(self, "_writer"):
                self._writer.close()
            if hasattr(self, "_life"):
                os.close(self._life)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(WorkerDied(self._obituary()))

    async def stop(self) -> None:
        """Let it close its sessions, then end it. Returns when the process is gone."""
        if not self.dead:
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write_eof()
            await asyncio.to_thread(self.gone.wait, _GRACE_SECONDS)
        self.kill()
        if hasattr(self, "_process") and not await asyncio.to_thread(self.gone.wait, 10.0):
            self._process.kill()
        if hasattr(self, "_reading"):
            await self._reading

    def memory(self) -> float:
        """Resident megabytes of the process and all that it started."""
        try:
            supervisor = psutil.Process(self._process.pid)
            return sum(_resident(child) for child in supervisor.children(recursive=True)) / 2**20
        except psutil.Error:
            return 0.0

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the worker and all that it started, without the supervisor."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            return ()
        return tuple(child.pid for child in children)

    def _listen(self) -> None:
        """Keep the last lines that it prints: in a thread of its own."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._last_words.append(line.decode(errors="replace").rstrip())

    def _reap(self) -> None:
        """Wait for the supervisor; if it was killed, do its work: in a thread of its own."""
        killed = self._process.wait() < 0
        if killed and self.hello:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.hello["pid"], signal.SIGKILL)
        self.gone.set()

    def _obituary(self) -> str:
        words = " | ".join(line for line in list(self._last_words)[-5:] if line)
        printed = f"; it printed: {words}" if words else ""
        return f"{self.blueprint.use}: its worker died{printed}"

    def _no_worker(self) -> Exception:
        """Why it did not even greet."""
        words = " | ".join(list(self._last_words)[-3:]) or "it ended without a word"
        python = self.blueprint.python
        if python is None:
            return EnvironmentFailure(self._obituary())
        return ConfigError(
            f"{self.blueprint.path}.python: {python} cannot run a worker: {words}. Install "
            "agentgym-core and the environment's package there"
        )


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def _error(told: Json) -> Exception:
    """An error of the worker, as it was there."""
    kinds: dict[str, type[Exception]] = {"format": FormatError, "config": ConfigError}
    return kinds.get(told["kind"], EnvironmentFailure)(told["message"])
