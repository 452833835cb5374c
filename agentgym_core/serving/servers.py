"""Servers of one environment: which of them answer, and which has the fewest sessions."""

import asyncio
import contextlib
import os
import random
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from typing import Any, cast

import attrs
import httpx

from agentgym_core.errors import ConfigError, EnvironmentFailure
from agentgym_core.serving.protocol import EnvironmentInfo, Json, info_from_json
from agentgym_core.wording import shown

TOKEN = "AGENTGYM_TOKEN"
"""The environment variable that holds the bearer token, at both ends."""

_RETRIES = (0.1, 0.5, 2.0)
"""Seconds before each new try of a request that got no answer."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
"""Seconds for which a lost server is left out: doubled while it stays lost."""


class ServerLost(EnvironmentFailure):
    """A server does not answer, or not as one of this protocol."""


class SessionRefused(EnvironmentFailure):
    """The server answered with an error."""

    def __init__(
        self, address: str, status: int, kind: str, said: str, retry_after: float = 1.0
    ) -> None:
        super().__init__(f"{address}: {said}")
        self.said = said
        self.status = status
        self.kind = kind
        self.retry_after = retry_after


@attrs.define(eq=False)
class Server:
    """One address."""

    address: str
    num_sessions: int = 0
    """That this client holds there."""
    info: EnvironmentInfo | None = None
    """What it said of itself since it was last lost."""
    lost_until: float = 0.0
    pause: float = _FIRST_PAUSE
    problem: str = ""

    def lose(self, problem: str) -> None:
        """Leave it out for a while."""
        self.info = None
        self.problem = problem
        self.lost_until = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)


def headers() -> dict[str, str]:
    """What every request carries."""
    token = os.environ.get(TOKEN)
    return {"Authorization": f"Bearer {token}"} if token else {}


class Servers:
    """The addresses of `env_addr`, over one pool of connections. Opened with `async with`."""

    def __init__(
        self,
        addresses: Sequence[str],
        use: str,
        options: Mapping[str, Any],
        call_seconds: float = 300.0,
    ) -> None:
        self.use = use
        self.options = options
        self.call_seconds = call_seconds
        self.servers = [Server(address.rstrip("/")) for address in addresses]
        self._met = False
        self._clients: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []
        encrypted = any(server.address.startswith("https:") for server in self.servers)
        self._tls = httpx.create_ssl_context() if encrypted else False

    async def __aenter__(self) -> "Servers":
        """Meet every server that answers.

        Raises:
            ConfigError: one of them serves something else.
        """
        try:
            await asyncio.gather(*(self._try_to_meet(server) for server in self.servers))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.aclose()

    async def take(self, wait_seconds: float) -> tuple[Server, str]:
        """Open a session at the server with the fewest; waits while all are full or lost.

        Returns:
            The server, and the session's id there.

        Raises:
            ServerLost: none has answered within that many seconds, or as it should.
        """
        last_answer = time.monotonic()
        while True:
            server = self._choose()
            if server is None:
                waited = time.monotonic() - last_answer
                if waited > wait_seconds:
                    raise ServerLost(self._all_lost(waited))
                await asyncio.sleep(0.1)
                continue
            server.num_sessions += 1
            try:
                if not await self._try_to_meet(server):
                    raise ServerLost(server.problem)
                session_id = await self._create(server)
                server.pause = _FIRST_PAUSE
                return server, session_id
            except ServerLost:
                server.num_sessions -= 1  # and another one is chosen
            except SessionRefused as refused:
                server.num_sessions -= 1
                if refused.status != 429:
                    raise
                last_answer = time.monotonic()
                await asyncio.sleep(refused.retry_after * random.uniform(0.2, 1.0))
            except BaseException:
                server.num_sessions -= 1
                raise

    def give_back(self, server: Server) -> None:
        """The session is closed."""
        server.num_sessions -= 1

    @contextlib.contextmanager
    def line(self) -> Generator[httpx.AsyncClient]:
        """A client that nobody else uses at the moment.

        One client for all would look through all its connections at every request: with 64
        sessions that took longer than everything else together.
        """
        if not self._idle:
            timeout = httpx.Timeout(self.call_seconds + 30.0, connect=5.0)
            client = httpx.AsyncClient(
                headers=headers(), timeout=timeout, trust_env=False, verify=self._tls
            )
            self._clients.append(client)
            self._idle.append(client)
        client = self._idle.pop()
        try:
            yield client
        finally:
            self._idle.append(client)

    async def post(self, server: Server, path: str, body: Json) -> Json:
        """A request that may be sent again, because the server does it once.

        Raises:
            ServerLost: no answer, after all tries.
            SessionRefused: the answer is an error.
        """
        return await self._request(server, "POST", path, json=body)

    async def get(self, server: Server, path: str, **query: str) -> Json:
        """The same, with the arguments in the address."""
        return await self._request(server, "GET", path, params=query)

    async def _request(self, server: Server, method: str, path: str, **content: Any) -> Json:
        problem = ""
        for pause in (0.0, *_RETRIES):
            if pause:
                await asyncio.sleep(pause)
            try:
                with self.line() as client:
                    answer = await client.request(method, server.address + path, **content)
                return read(answer, server.address)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
                if isinstance(error, httpx.ConnectError) and server.info is None:
                    break  # it is not there at all: better another server now
            except ServerLost as error:
                problem = str(error)
        server.lose(problem)
        raise ServerLost(f"{server.address} does not answer {path}: {problem}")

    async def _create(self, server: Server) -> str:
        return (await self.post(server, "/create", {"key": uuid.uuid4().hex}))["id"]

    def _choose(self) -> Server | None:
        now = time.monotonic()
        there = [server for server in self.servers if server.lost_until <= now]
        return min(there, key=lambda server: server.num_sessions, default=None)

    async def _try_to_meet(self, server: Server) -> bool:
        """Whether it is there. One that serves something else now is as good as lost."""
        if server.info is None:
            try:
                told = await self.get(server, "/info")
                server.info = check_info(told, server.address, self.use, self.options)
            except (ServerLost, SessionRefused):
                return False
            except ConfigError as error:
                if not self._met:
                    raise
                server.lose(str(error))
                return False
        self._met = True
        return True

    def _all_lost(self, waited: float) -> str:
        listed = "; ".join(f"{server.address}: {server.problem}" for server in self.servers)
        return f"{self.use}: no server of env_addr has answered for {waited:.0f} s: {listed}"


def read(answer: httpx.Response, address: str) -> Json:
    """The body of an answer.

    Raises:
        SessionRefused: it is an error of the protocol.
        ServerLost: it is an error of something else, such as a proxy without its server.
    """
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.status_code == 200 and body is not None:
        return body
    error: Any = cast("Json", body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        raise ServerLost(f"{address} answered {answer.status_code}: {shown(answer.text)}")
    error = cast("Json", error)
    retry_after = answer.headers.get("Retry-After", "1")
    seconds = float(retry_after) if retry_after.isdigit() else 1.0
    said, kind = str(error.get("message", "")), str(error.get("type", ""))
    raise SessionRefused(address, answer.status_code, kind, said, seconds)


def check_info(told: Any, address: str, use: str, options: Mapping[str, Any]) -> EnvironmentInfo:
    """What a server serves, if it is what was asked for.

    Raises:
        ConfigError: it is another environment, protocol, or the same with other options.
    """
    try:
        info = info_from_json(told, address)
    except EnvironmentFailure as failure:
        raise ConfigError(f"env_addr: {failure}") from failure
    if info.environment != use:
        raise ConfigError(
            f"env_addr: {address} serves {info.environment}, and {use} is wanted: mend the "
            "address, or `use`"
        )
    for key, value in options.items():
        if key not in info.options:
            known = ", ".join(info.options)
            raise ConfigError(f"env_addr: {use} at {address} has no key {key!r}. It has: {known}")
        if info.options[key] != value:
            raise ConfigError(
                f"env_addr: {address} serves {use} with {key}={shown(info.options[key])}, and "
                f"{shown(value)} is wanted: leave the key out, or start the server with it"
            )
    return info
