"""The client: an environment behind servers, which a run uses like any other."""

import asyncio
import atexit
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx

from agentgym_core.catalog import Catalog
from agentgym_core.errors import ConfigError, EnvironmentFailure, FormatError
from agentgym_core.protocols import Environment, Session
from agentgym_core.serving.distant import DistantEnvironment
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.protocol import (
    EnvironmentInfo,
    Json,
    format_from_json,
    observation_from_json,
    task_from_json,
    task_to_json,
)
from agentgym_core.serving.servers import (
    TOKEN,
    Server,
    ServerLost,
    Servers,
    SessionRefused,
    check_info,
    headers,
    read,
)
from agentgym_core.serving.upstream_client import upstream_environment
from agentgym_core.serving.upstream_servers import speak_upstream
from agentgym_core.structure import join
from agentgym_core.types import Observation, Task

_WAIT_SECONDS = 60.0
"""How long a new session waits for a server to answer while all are lost."""
_PAGE = 5000


class EnvClient(Session):
    """A session at a server. What gets no answer is sent again, and done once."""

    def __init__(self, servers: Servers, server: Server, session_id: str, *, owner: bool) -> None:
        self._servers = servers
        self._server = server
        self._id = session_id
        self._owner = owner
        self._episode = -1
        self._step = 0
        self._closed = False

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task."""
        self._episode += 1
        self._step = 0
        body = {"task": task_to_json(task), "seed": seed, "episode": self._episode}
        return self._see(await self._post("/reset", **body))

    async def step(self, action: str) -> Observation:
        """Take an action."""
        seen = self._see(await self._post("/step", action=action, step=self._step + 1))
        self._step += 1
        return seen

    async def observation(self) -> Observation:
        """The last one, as the server remembers it."""
        return self._see(await self._get("/observation"))

    async def available_actions(self) -> Sequence[str]:
        """See `Session`."""
        return (await self._get("/available_actions"))["actions"]

    async def expert_action(self) -> str | None:
        """See `Session`."""
        return (await self._get("/expert_action"))["action"]

    async def close(self) -> None:
        """Give the session back. A server that is lost will find out by itself."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._servers.post(self._server, "/close", {"id": self._id})
        except (ServerLost, SessionRefused):
            pass
        finally:
            self._servers.give_back(self._server)
            if self._owner:
                await self._servers.__aexit__()

    async def _post(self, path: str, **body: Any) -> Json:
        self._check_open()
        return await self._servers.post(self._server, path, {"id": self._id, **body})

    async def _get(self, path: str) -> Json:
        self._check_open()
        return await self._servers.get(self._server, path, id=self._id)

    def _check_open(self) -> None:
        if self._closed:
            raise EnvironmentFailure("the session is closed")

    def _see(self, answer: Json) -> Observation:
        try:
            return observation_from_json(answer["observation"])
        except (KeyError, TypeError, ValueError) as error:
            raise EnvironmentFailure(
                f"{self._server.address} answered no observation: {error}"
            ) from error


class Place:
    """Where a run opens sessions at servers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def __aenter__(self) -> "Place":
        await self._servers.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._servers.__aexit__()

    async def open(self) -> EnvClient:
        """At the server with the fewest sessions."""
        server, session_id = await self._servers.take(_WAIT_SECONDS)
        return EnvClient(self._servers, server, session_id, owner=False)


@attrs.frozen(kw_only=True)
class RemoteEnvironment(DistantEnvironment):
    """An environment behind servers; its package need not be installed here."""

    use: str
    env_addr: tuple[str, ...] = attrs.field(converter=tuple)
    """Addresses such as `http://host:8000`; each serves the same."""
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False)
    """Keys that the servers must have been started with."""

    @property
    def runs_in(self) -> Any:
        """Nothing of it blocks here."""
        return "inline"

    @property
    def splits(self) -> Sequence[str]:
        """As the servers say."""
        return tuple(self._info.tasks)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, as the first server that answers lists them."""
        assert self._info  # it is the right one
        return _tasks(self.env_addr, split, os.environ.get(TOKEN))

    def instructions(self) -> str:
        """What the policy is told."""
        return self._info.instructions

    @property
    def action_format(self) -> Any:
        """The environment's own, or one that asks a server."""
        return format_from_json(self._info, self._ask)

    def corpus(self) -> Iterable[str]:
        """Texts that hold every word."""
        return ask(self.env_addr, "GET", "/corpus")["texts"]

    def block(self) -> dict[str, Any]:
        """Its keys in a YAML file."""
        return {"env_addr": list(self.env_addr), **self.options}

    async def open(self) -> EnvClient:
        """A session with connections of its own. Runs share them instead: see `place`."""
        servers = Servers(self.env_addr, self.use, self.options)
        try:
            server, session_id = await servers.take(_WAIT_SECONDS)
        except BaseException:
            await servers.__aexit__()
            raise
        return EnvClient(servers, server, session_id, owner=True)

    def place(self, settings: HostSettings, call_seconds: float) -> Place:
        """Sessions over shared connections, spread over the servers."""
        del settings  # the servers have their own
        return Place(Servers(self.env_addr, self.use, self.options, call_seconds))

    @property
    def _info(self) -> EnvironmentInfo:
        return _info(self.env_addr, self.use, json.dumps(dict(self.options), sort_keys=True))

    async def _ask(self, call: str, **arguments: Any) -> Any:
        try:
            answer = await asyncio.to_thread(ask, self.env_addr, "POST", f"/{call}", json=arguments)
        except SessionRefused as refused:
            if refused.kind == "format":
                raise FormatError(refused.said) from refused
            raise
        return answer["action" if call == "parse" else "text"]


def remote_environment(
    use: str,
    addresses: Sequence[str],
    options: Mapping[str, Any],
    dialect: str | None,
    path: str,
    catalog: Catalog,
) -> Environment:
    """The environment of an `env_addr` block, in the dialect that its servers speak.

    Raises:
        ConfigError: an address is none, or the dialect does not know the environment.
        ComponentNotFoundError: the servers are AgentGym's, and its package is not installed here.
    """
    if not addresses:
        raise ConfigError(f"{join(path, 'env_addr')}: expected at least one address, got none")
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"{join(path, 'env_addr')}: expected an address such as http://host:8000, got "
                f"{address!r}"
            )
    if dialect == "upstream" or (dialect is None and speak_upstream(addresses)):
        return upstream_environment(use, addresses, options, path, catalog)
    return RemoteEnvironment(use=use, env_addr=tuple(addresses), options=options)


def ask(addresses: Sequence[str], method: str, path: str, **content: Any) -> Json:
    """Ask the servers in their order until one answers.

    Raises:
        ServerLost: none does.
        SessionRefused: one answers with an error.
    """
    problems: list[str] = []
    for address in addresses:
        try:
            address = address.rstrip("/")
            answer = _http().request(method, address + path, headers=headers(), **content)
            return read(answer, address)
        except (httpx.TransportError, ServerLost) as error:
            problems.append(f"{address}: {type(error).__name__}: {error}")
    raise ServerLost(f"no server of env_addr answers: {'; '.join(problems)}")


@functools.cache
def _http() -> httpx.Client:
    """For what is asked outside of sessions; safe in any thread."""
    client = httpx.Client(timeout=httpx.Timeout(600.0, connect=5.0), trust_env=False)
    atexit.register(client.close)
    return client


@functools.lru_cache(maxsize=64)
def _info(addresses: tuple[str, ...], use: str, options: str) -> EnvironmentInfo:
    return check_info(ask(addresses, "GET", "/info"), addresses[0], use, json.loads(options))


@functools.lru_cache(maxsize=64)
def _tasks(addresses: tuple[str, ...], split: str, token: str | None) -> tuple[Task, ...]:
    del token  # another one may see other tasks
    found: list[Task] = []
    while True:
        query = {"split": split, "offset": len(found), "limit": _PAGE}
        page = ask(addresses, "GET", "/tasks", params=query)
        found += [task_from_json(task) for task in page["tasks"]]
        if len(found) >= page["total"] or not page["tasks"]:
            return tuple(found)
