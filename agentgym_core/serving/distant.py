"""What environments have in common whose sessions live elsewhere."""

from abc import abstractmethod
from typing import Any

from agentgym_core.protocols import Environment
from agentgym_core.serving.host import HostSettings


class DistantEnvironment(Environment):
    """An environment of another interpreter, or behind servers."""

    @abstractmethod
    def place(self, settings: HostSettings, call_seconds: float) -> Any:
        """Where a run opens its sessions: a context manager with a method `open`."""

    @abstractmethod
    def block(self) -> dict[str, Any]:
        """Its keys in a YAML file, but for `use`."""
