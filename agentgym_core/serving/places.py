"""Where a run opens its sessions: in this process, in threads, in workers, or at servers."""

import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Protocol

from agentgym_core.protocols import Environment, Opens
from agentgym_core.serving.distant import DistantEnvironment
from agentgym_core.serving.host import Host, HostSettings
from agentgym_core.serving.isolated import SHARED
from agentgym_core.serving.process import Blueprint
from agentgym_core.serving.threads import ThreadSession, in_thread


class Hosted(Protocol):
    """An environment of a run, with its settings; see `config.EnvironmentBlock`."""

    @property
    def name(self) -> str:
        """Under which the run knows it."""
        ...

    @property
    def component(self) -> Environment:
        """The environment."""
        ...

    @property
    def host(self) -> HostSettings:
        """How its workers are kept."""
        ...


class Threads:
    """Every session in a thread of its own."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def __aenter__(self) -> "Threads":
        return self

    async def __aexit__(self, *_: object) -> None:
        """The sessions end themselves."""

    async def open(self) -> ThreadSession:
        """A session in a thread."""
        return await in_thread(self._environment)


def place_of(environment: Environment, settings: HostSettings, call_seconds: float) -> Any:
    """Where its sessions are opened, a context manager; None if in this process and its loop."""
    if isinstance(environment, DistantEnvironment):
        return environment.place(settings, call_seconds)
    if environment.runs_in == "process" or settings.workers is not None:
        alone = environment.runs_in == "process"
        return Host(
            Blueprint.of(environment),
            sessions_per_worker=environment.sessions_per_process if alone else SHARED,
            settings=settings,
            call_seconds=call_seconds,
        )
    return Threads(environment) if environment.runs_in == "thread" else None


@contextlib.asynccontextmanager
async def places(blocks: Iterable[Hosted], call_seconds: float) -> AsyncGenerator[dict[str, Opens]]:
    """The places of these environments, by name; at the end nothing of them is left.

    Workers start when the first session needs them.
    """
    async with contextlib.AsyncExitStack() as stack:
        found: dict[str, Opens] = {}
        for block in blocks:
            place = place_of(block.component, block.host, call_seconds)
            if place is not None:
                found[block.name] = await stack.enter_async_context(place)
        yield found
