"""The worker: sessions of one environment, in a process that obeys its parent over a pipe.

Each message is JSON behind its length in four bytes. The first one builds the environment; each
other is a call with a number, which its answer repeats. Nothing is pickled, so that both ends may
be different Pythons.
"""

import asyncio
import contextlib
import importlib
import json
import os
import platform
import socket
import struct
import sys
from typing import Any

from agentgym_core.catalog import Catalog
from agentgym_core.contract import check_observation, corpus_of, is_fault, tasks_of
from agentgym_core.errors import AgentGymError, ConfigError, FormatError
from agentgym_core.protocols import Environment, Session
from agentgym_core.serving.protocol import (
    Json,
    core_version,
    describe,
    info_to_json,
    observation_to_json,
    task_from_json,
    task_to_json,
)
from agentgym_core.serving.threads import in_thread
from agentgym_core.structure import structure
from agentgym_core.wording import one_line, origin

_LENGTH = struct.Struct(">I")
MAX_BYTES = 256 * 2**20
"""Of one message. What is longer is no observation."""


def frame(message: Json) -> bytes:
    """A message as it goes over the pipe."""
    data = json.dumps(message).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"a message of {len(data)} bytes is too long")
    return _LENGTH.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> Json | None:
    """The next message; None when the other end is gone."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def serve(pipe: int) -> None:
    """Obey until the pipe ends."""
    asyncio.run(_Worker().run(socket.socket(fileno=pipe)))


def build(blueprint: Json) -> Environment:
    """The environment of a handshake.

    Raises:
        AgentGymError: it cannot be built; says where in the YAML.
    """
    sys.path[:] = blueprint.get("sys_path") or sys.path
    path, options = blueprint["path"], blueprint["options"]
    if blueprint.get("import_string") is None:
        block = {"use": blueprint["use"], **options}
        return Catalog.installed().build("environment", block, path)
    module, _, name = blueprint["import_string"].partition(":")
    cls: Any = importlib.import_module(module)
    for part in name.split("."):
        cls = getattr(cls, part)
    return structure(cls, options, path)


class _Worker:
    """One environment, and its sessions by number."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        blueprint = await receive(reader)
        if blueprint is None:
            return
        hello = self._hello(blueprint)
        writer.write(frame(hello))
        while (message := await receive(reader)) is not None:
            answer = asyncio.create_task(self._answer(message, writer))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
        for session in self._sessions.values():
            with contextlib.suppress(Exception):
                await session.close()

    def _hello(self, blueprint: Json) -> Json:
        try:
            self._environment = build(blueprint)
            info = describe(self._environment, blueprint["use"], count_tasks=False)
        except BaseException as error:
            if not is_fault(error):
                raise
            told = _described(error, "")
            if told["kind"] == "failure":  # such as a name that nobody registers
                told = {"kind": "config", "message": f"{blueprint['path']}: {told['message']}"}
            return {"error": told}
        return {
            "info": info_to_json(info),
            "python": platform.python_version(),
            "pid": os.getpid(),
            "core": core_version(),
            "runs_in": self._environment.runs_in,
            "sessions_per_process": self._environment.sessions_per_process,
            "splits": list(self._environment.splits),
        }

    async def _answer(self, message: Json, writer: asyncio.StreamWriter) -> None:
        answer: Json = {"number": message["number"]}
        call, arguments = message["call"], message["arguments"]
        try:
            answer["value"] = await getattr(self, f"_{call}")(**arguments)
            data = frame(answer)
        except BaseException as error:
            if not is_fault(error):
                raise
            where = f"{origin(self._environment)}: {call}"
            data = frame({"number": message["number"], "error": _described(error, where)})
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    # The calls.

    async def _open(self, session: int) -> None:
        if self._environment.runs_in == "thread":
            self._sessions[session] = await in_thread(self._environment)
        else:
            self._sessions[session] = await self._environment.open()

    async def _reset(self, session: int, task: Json, seed: int) -> Json:
        observation = await self._sessions[session].reset(task_from_json(task), seed)
        return observation_to_json(check_observation(self._environment, observation))

    async def _step(self, session: int, action: str) -> Json:
        observation = await self._sessions[session].step(action)
        return observation_to_json(check_observation(self._environment, observation))

    async def _available_actions(self, session: int) -> list[str]:
        return [str(action) for action in await self._sessions[session].available_actions()]

    async def _expert_action(self, session: int) -> str | None:
        return await self._sessions[session].expert_action()

    async def _close(self, session: int) -> None:
        held = self._sessions.pop(session, None)
        if held is not None:
            await held.close()

    async def _parse(self, text: str) -> str:
        return self._environment.action_format.parse(text)

    async def _render(self, action: str, thought: str = "") -> str:
        return self._environment.action_format.render(action, thought)

    async def _tasks(self, split: str) -> list[Json]:
        return [task_to_json(task) for task in tasks_of(self._environment, split)]

    async def _corpus(self) -> list[str]:
        return list(corpus_of(self._environment))


def _described(error: BaseException, where: str) -> Json:
    """An error as it travels: the core's own keep what they are and say."""
    text = one_line(error)
    if isinstance(error, FormatError):
        return {"kind": "format", "message": str(error)}
    if isinstance(error, ConfigError):
        return {"kind": "config", "message": text}
    if isinstance(error, AgentGymError):
        return {"kind": "failure", "message": text}
    where = f"{where}: " if where else ""
    return {"kind": "raised", "message": f"{where}{type(error).__name__}: {text}".rstrip(": ")}
