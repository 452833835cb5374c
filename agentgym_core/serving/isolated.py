"""An environment whose package lives in another interpreter, beside this one.

`environment: {use: sciworld, python: envs/sciworld/bin/python}`. That interpreter has agentgym-core
and the environment's package; what they depend on never meets what the trainer depends on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from agentgym_core.protocols import Session
from agentgym_core.serving.desk import Desk, desk_of
from agentgym_core.serving.distant import DistantEnvironment
from agentgym_core.serving.host import Host, HostSettings
from agentgym_core.serving.process import Blueprint
from agentgym_core.serving.protocol import (
    EnvironmentInfo,
    format_from_json,
    info_from_json,
    task_from_json,
)
from agentgym_core.types import Task

SHARED = 64
"""Sessions in one worker of an environment that does not ask for a process of its own."""


@attrs.frozen(kw_only=True)
class IsolatedEnvironment(DistantEnvironment):
    """An environment that workers of another interpreter hold."""

    use: str
    """The name under which it is registered there."""
    python: str
    """Path of the interpreter."""
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False)
    """The keys of its block."""
    path: str = attrs.field(default="environment", eq=False)
    """Where the block stands in the YAML file, for errors."""

    @classmethod
    def found(
        cls, use: str, python: str, options: Mapping[str, Any], path: str
    ) -> "IsolatedEnvironment":
        """Ask the interpreter whether it has such an environment, and complete its options.

        Raises:
            ConfigError: it has none, or refuses the options; says where in the YAML.
        """
        asked = cls(use=use, python=python, options=options, path=path)
        return attrs.evolve(asked, options=asked._info.options)

    @property
    def runs_in(self) -> Any:
        """Always in a process."""
        return "process"

    @property
    def sessions_per_process(self) -> int:
        """What the environment declares."""
        hello = self._desk.hello()
        return hello["sessions_per_process"] if hello["runs_in"] == "process" else SHARED

    @property
    def splits(self) -> Sequence[str]:
        """What the environment declares."""
        return tuple(self._desk.hello()["splits"])

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split."""
        return [task_from_json(task) for task in self._desk.ask("tasks", split=split)]

    def instructions(self) -> str:
        """What the policy is told."""
        return self._info.instructions

    @property
    def action_format(self) -> Any:
        """The environment's own, or one that asks it."""
        return format_from_json(self._info, self._desk.ask_soon)

    def corpus(self) -> Iterable[str]:
        """Texts that hold every word."""
        return self._desk.ask("corpus")

    def block(self) -> dict[str, Any]:
        """Its keys in a YAML file."""
        return {"python": self.python, **self.options}

    async def open(self) -> Session:
        """A session in a worker of its own. Runs share workers instead: see `place`."""
        return await self.place(HostSettings(workers=1), 300.0).open()

    def place(self, settings: HostSettings, call_seconds: float) -> Host:
        """Workers of that interpreter."""
        return Host(
            self._blueprint,
            sessions_per_worker=self.sessions_per_process,
            settings=settings,
            call_seconds=call_seconds,
        )

    @property
    def _blueprint(self) -> Blueprint:
        return Blueprint(use=self.use, options=self.options, python=self.python, path=self.path)

    @property
    def _desk(self) -> Desk:
        return desk_of(self._blueprint)

    @property
    def _info(self) -> EnvironmentInfo:
        return info_from_json(self._desk.hello()["info"], self.use)
