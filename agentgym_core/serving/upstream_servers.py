"""AgentGym's own servers: which of them answer, and what they say when something is wrong."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import attrs
import httpx

from agentgym_core.errors import ConfigError, EnvironmentFailure
from agentgym_core.serving.dialects import GREETING, Row
from agentgym_core.serving.protocol import PROTOCOL, EnvironmentInfo, Json
from agentgym_core.serving.servers import Server, ServerLost, Servers, headers
from agentgym_core.wording import shown

WAIT_SECONDS = 60.0
"""How long a new session waits for a server to answer while all are lost."""
_RETRIES = (0.1, 0.5, 2.0)
"""Seconds before each new try of a request that may be sent again."""
_AWAY = (502, 503, 504)
"""What a proxy answers whose server is away."""


@attrs.define(eq=False)
class Hold:
    """A session there, by its server and number."""

    server: Server
    number: int
    stale: bool = False
    """The server has been started anew since: the number is another session's, or nobody's."""
    released: bool = False

    def check(self) -> None:
        """Raises EnvironmentFailure if it is stale."""
        if self.stale:
            raise EnvironmentFailure(f"{self.server.address} has been started anew since")


class UpstreamServers(Servers):
    """Servers of AgentGym, over one pool of connections."""

    def __init__(self, addresses: Sequence[str], row: Row, call_seconds: float) -> None:
        super().__init__(addresses, row.use, {}, call_seconds)
        self.row = row
        self._holds: dict[tuple[str, int], Hold] = {}

    async def hold(self) -> Hold:
        """A new session at the server with the fewest.

        A server that gives a number that is still held counts from 0 again: it has been started
        anew, and what was held of it is gone.

        Raises:
            ServerLost: none answers for a while.
            EnvironmentFailure: one answers with an error.
        """
        server, name = await self.take(WAIT_SECONDS)
        made = Hold(server, int(name))
        if (server.address, made.number) in self._holds:
            for key, other in list(self._holds.items()):
                if other.server is server:
                    other.stale = True
                    del self._holds[key]
        self._holds[server.address, made.number] = made
        return made

    async def release(self, hold: Hold) -> None:
        """Close a session there. Older servers cannot: that is their affair."""
        if hold.released:
            return
        hold.released = True
        key = (hold.server.address, hold.number)
        if self._holds.get(key) is hold:
            del self._holds[key]
        try:
            if not hold.stale:
                body = {self.row.session: hold.number}
                await self.call(hold.server, "POST", "/close", again=False, json=body)
        except EnvironmentFailure:
            pass
        finally:
            self.give_back(hold.server)

    async def call(
        self, server: Server, method: str, path: str, *, again: bool = True, **content: Any
    ) -> Any:
        """A request, and its answer.

        Args:
            server: whom to ask.
            method: GET or POST.
            path: what to ask.
            again: whether it does no harm to send it twice.
            content: the body or the query, as httpx takes it.

        Raises:
            ServerLost: no answer, after all tries.
            EnvironmentFailure: the answer is an error, in whichever way this server tells it.
        """
        problem = ""
        for pause in (0.0, *_RETRIES) if again else (0.0,):
            await asyncio.sleep(pause)
            try:
                with self.line() as client:
                    answer = await client.request(method, server.address + path, **content)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
                if isinstance(error, httpx.ConnectError) and server.info is None:
                    break  # it is not there at all: better another server now
                continue
            if answer.status_code in _AWAY:
                problem = f"it answered {answer.status_code}"
                continue
            return self._read(server, path, answer)
        server.lose(problem)
        raise ServerLost(f"{server.address} does not answer {path}: {problem}")

    def _read(self, server: Server, path: str, answer: httpx.Response) -> Any:
        if answer.status_code != 200:
            raise EnvironmentFailure(
                f"{server.address}{path} answered {answer.status_code}: {shown(answer.text)}"
            )
        try:
            said = answer.json()
        except ValueError:
            said = answer.text
        if fault := self.row.fault(said):
            raise EnvironmentFailure(f"{server.address}{path}: {fault}")
        return said

    async def _create(self, server: Server) -> str:
        made = await self.call(server, "POST", "/create", json=self.row.create_with)
        if not self.row.created_bare:
            made = field(made, self.row.session, int, server.address)
        if isinstance(made, bool) or not isinstance(made, int):
            raise EnvironmentFailure(
                f"{server.address}/create answered {shown(made)}, expected a session's number: it "
                f"may serve something else than {self.use}"
            )
        return str(made)

    async def _try_to_meet(self, server: Server) -> bool:
        if server.info is None:
            try:
                said = await self.call(server, "GET", "/")
            except ServerLost:
                return False
            except EnvironmentFailure as failure:
                said = str(failure)
            if said != self.row.greeting:
                problem = (
                    f"env_addr: {server.address} answers GET / with {shown(said)}, and AgentGym's "
                    f"server of {self.use} with {self.row.greeting!r}: mend the address, or `use`, "
                    "or leave `dialect` out if the server is of this project"
                )
                if not self._met:
                    raise ConfigError(problem)
                server.lose(problem)
                return False
            server.info = EnvironmentInfo(protocol=PROTOCOL, environment=self.use)
        self._met = True
        return True


def speak_upstream(addresses: Iterable[str]) -> bool:
    """Whether the first of these servers that answers is one of AgentGym's own.

    They answer 404 to `/info`, which every server of this project has, and greet at `/`.
    """
    timeout = httpx.Timeout(10.0, connect=2.0)
    with httpx.Client(headers=headers(), timeout=timeout, trust_env=False) as client:
        for address in addresses:
            address = address.rstrip("/")
            try:
                if client.get(f"{address}/info").status_code != 404:
                    return False
                answer = client.get(f"{address}/")
            except httpx.TransportError:
                continue
            return answer.status_code == 200 and GREETING.fullmatch(_text(answer)) is not None
    return False


def _text(answer: httpx.Response) -> str:
    """Some of them answer it as JSON, and some plainly."""
    try:
        return str(json.loads(answer.text))
    except ValueError:
        return answer.text


def field(fields: Any, name: str, kind: type, address: str) -> Any:
    """A field of an answer.

    Raises:
        EnvironmentFailure: the answer has none, or of another kind.
    """
    value: Any = cast("Json", fields).get(name) if isinstance(fields, dict) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(value)
    if kind is not float and isinstance(value, kind) and (kind is not int or is_number):
        return value
    raise EnvironmentFailure(f"{address} answered {shown(fields)}, expected a field {name!r}")
