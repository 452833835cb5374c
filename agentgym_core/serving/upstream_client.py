"""An environment on AgentGym's own servers.

They play, and nothing more: tasks, instructions and the action format are those of the package of
the environment, which must be installed here. They know no step numbers, so a step is sent once; if
its answer is lost, the episode has failed.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import attrs

from agentgym_core.actions import ActionFormat, rendered
from agentgym_core.catalog import Catalog
from agentgym_core.errors import ComponentNotFoundError, EnvironmentFailure
from agentgym_core.protocols import Environment, Session
from agentgym_core.serving.dialects import Row, Verdict, number_of, row_of
from agentgym_core.serving.distant import DistantEnvironment
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.protocol import Json
from agentgym_core.serving.servers import ServerLost
from agentgym_core.serving.upstream_servers import Hold, UpstreamServers, field
from agentgym_core.structure import join, unstructure
from agentgym_core.types import Observation, Task


class UpstreamSession(Session):
    """A session at one of AgentGym's servers."""

    def __init__(self, place: "UpstreamPlace", hold: Hold, *, used: bool, owner: bool) -> None:
        self._place = place
        self._row = place.servers.row
        self._hold = hold
        self._used = used
        """Whether episodes were played in it before."""
        self._owner = owner
        self._score = 0.0
        self._under_way = False
        self._sound = True
        self._closed = False

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task of that number. The seed changes nothing there.

        Raises:
            EnvironmentFailure: the server does not know the task, or fails.
        """
        del seed
        number = number_of(self._row.use, task.id)
        if number is None:
            raise EnvironmentFailure(
                f"task {task.id!r} has no number by which AgentGym's servers know it: they have "
                f"tasks such as {self._row.use}_12"
            )
        self._under_way = False
        try:
            fields = await self._begin(number)
        except ServerLost:
            raise
        except EnvironmentFailure:
            if not self._used or self._closed:
                raise
            await self._place.servers.release(self._hold)
            self._hold, self._used, self._sound = await self._place.servers.hold(), False, True
            fields = await self._begin(number)
        text = self._read(fields, "observation", str)
        if described := fields.get("task_description"):
            text = f"{described}\n{text}"
        self._score = self._read(fields, "score", float) if "score" in fields else 0.0
        self._under_way = True
        return Observation(messages=text, info=self._info(fields))

    async def _begin(self, number: int) -> Json:
        body = {self._row.index: number, **self._row.reset_with}
        said = await self._ask("POST", "/reset", json=body)
        fields = cast("Json", said) if isinstance(said, dict) else {"observation": said}
        if self._row.opens_with_observation:
            fields["observation"] = await self._ask("GET", "/observation")
        return fields

    async def step(self, action: str) -> Observation:
        """Take an action. It is sent once.

        Raises:
            RuntimeError: no task is under way.
            EnvironmentFailure: the server fails, or its answer is lost.
        """
        if not self._under_way:
            raise RuntimeError("no task is under way: reset it first")
        self._under_way = False  # until the answer is here, nobody knows
        text = await self._worded(action)
        fields = await self._ask("POST", "/step", again=False, json={"action": text})
        verdict = self._judged(fields, text)
        self._under_way = not (verdict.terminated or verdict.truncated)
        return Observation(
            messages=self._read(fields, "observation", str),
            reward=verdict.reward,
            terminated=verdict.terminated,
            truncated=verdict.truncated,
            success=verdict.success,
            info=self._info(fields),
        )

    async def close(self) -> None:
        """Leave it to the next episode; one in which something failed is closed there as well."""
        if self._closed:
            return
        self._closed, self._under_way = True, False
        if self._sound:
            self._place.keep(self._hold)
        else:
            await self._place.servers.release(self._hold)
        if self._owner:
            await self._place.__aexit__()

    async def _ask(self, method: str, path: str, json: Json | None = None, **how: Any) -> Any:
        if self._closed:
            raise EnvironmentFailure("the session is closed")
        which = {self._row.session: self._hold.number}
        content: Json = {"params": which} if json is None else {"json": {**which, **json}}
        sound, self._sound = self._sound, False  # until an answer is here
        self._hold.check()
        said = await self._place.servers.call(self._hold.server, method, path, **how, **content)
        self._hold.check()  # the answer may be another session's
        self._sound = sound
        return said

    async def _worded(self, action: str) -> str:
        """As the server wants it."""
        if self._row.takes == "reply":
            return await rendered(self._place.local.action_format, action)
        for ours, theirs in self._row.renames.items():
            if action.lower().startswith(ours):
                return theirs + action[len(ours) :]
        return action

    def _judged(self, fields: Any, sent: str) -> Verdict:
        kinds = {"observation": str, "reward": float, "score": float, "info": object}
        told = {name: self._read(fields, name, kinds.get(name, bool)) for name in self._row.answer}
        verdict = self._row.judge(told, self._score)
        self._score = told.get("score", 0.0)
        last = self._row.last_word
        if last and last in sent.lower() and not self._place.guesses_are_free:
            verdict = attrs.evolve(verdict, terminated=True, truncated=False)
        return verdict

    def _read(self, fields: Any, name: str, kind: type) -> Any:
        try:
            return field(fields, name, kind, self._hold.server.address)
        except EnvironmentFailure:
            self._sound = False
            raise

    def _info(self, fields: Json) -> Json:
        return {key: fields[name] for name, key in self._row.info.items() if name in fields}


class UpstreamPlace:
    """Where a run opens sessions at AgentGym's servers, and keeps them for the next episode.

    Opening one there takes seconds where it starts a simulator, and closing it may leave that
    behind; a reset takes a fraction.
    """

    def __init__(self, servers: UpstreamServers, local: Environment) -> None:
        self.servers = servers
        self.local = local
        self._kept: list[Hold] = []

    async def __aenter__(self) -> "UpstreamPlace":
        await self.servers.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        kept, self._kept = self._kept, []
        await asyncio.gather(*map(self.servers.release, kept))
        await self.servers.__aexit__()

    @property
    def guesses_are_free(self) -> bool:
        """Whether an episode goes on after a wrong answer, which the package here decides."""
        return bool(getattr(self.local, "endless_guesses", False))

    async def open(self, *, owner: bool = False) -> UpstreamSession:
        """One that was kept, or a new one at the server with the fewest."""
        now = time.monotonic()
        for hold in reversed(self._kept):
            if hold.server.lost_until <= now:
                self._kept.remove(hold)
                return UpstreamSession(self, hold, used=True, owner=owner)
        return UpstreamSession(self, await self.servers.hold(), used=False, owner=owner)

    def keep(self, hold: Hold) -> None:
        """For the next episode."""
        self._kept.append(hold)


@attrs.frozen(kw_only=True)
class UpstreamEnvironment(DistantEnvironment):
    """An environment whose sessions live on AgentGym's own servers."""

    use: str
    env_addr: tuple[str, ...] = attrs.field(converter=tuple)
    """Addresses such as `http://host:36001`; each serves the same."""
    local: Environment
    """The same environment, installed here."""

    @property
    def row(self) -> Row:
        """How its servers speak."""
        return row_of(self.use, "use")

    @property
    def runs_in(self) -> Any:
        """Nothing of it blocks here."""
        return "inline"

    @property
    def splits(self) -> Sequence[str]:
        """As the package here has them."""
        return self.local.splits

    def tasks(self, split: str) -> Sequence[Task]:
        """Those of the split that AgentGym's servers know, by number.

        Raises:
            ValueError: they know none of them.
        """
        found = self.local.tasks(split)
        known = [task for task in found if number_of(self.use, task.id) is not None]
        if not known:
            raise ValueError(
                f"AgentGym's servers know tasks such as {self.use}_12, and none of the "
                f"{len(found)} of the split {split!r}: choose another split, or other options"
            )
        return known

    def instructions(self) -> str:
        """What the policy is told, by the package here."""
        return self.local.instructions()

    @property
    def action_format(self) -> ActionFormat:
        """That of the package here."""
        return self.local.action_format

    def corpus(self) -> Iterable[str]:
        """The words of the package here; a server may have others."""
        return self.local.corpus()

    def block(self) -> dict[str, Any]:
        """Its keys in a YAML file."""
        return {
            "env_addr": list(self.env_addr),
            "dialect": "upstream",
            **unstructure(self.local),
        }

    async def open(self) -> UpstreamSession:
        """A session with connections of its own. Runs share them instead: see `place`."""
        place = self.place(HostSettings(), 300.0)
        await place.__aenter__()
        try:
            return await place.open(owner=True)
        except BaseException:
            await place.__aexit__()
            raise

    def place(self, settings: HostSettings, call_seconds: float) -> UpstreamPlace:
        """Sessions over shared connections, spread over the servers."""
        del settings  # the servers have their own
        return UpstreamPlace(UpstreamServers(self.env_addr, self.row, call_seconds), self.local)


def upstream_environment(
    use: str, addresses: Sequence[str], options: Mapping[str, Any], path: str, catalog: Catalog
) -> UpstreamEnvironment:
    """The environment of an `env_addr` block whose servers are AgentGym's.

    Raises:
        ConfigError: AgentGym has no servers for it, or an option does not fit.
        ComponentNotFoundError: its package is not installed here.
    """
    row_of(use, join(path, "dialect"))
    try:
        local = catalog.build("environment", {"use": use, **options}, path)
    except ComponentNotFoundError as error:
        raise ComponentNotFoundError(
            f"{path}: AgentGym's own servers tell neither tasks nor instructions, which come from "
            f"the package here: {error}"
        ) from error
    return UpstreamEnvironment(use=use, env_addr=tuple(addresses), local=local)
