"""Registers the two halves of AgentEvol."""

from agentgym_core import hookimpl
from agentgym_core.hookspecs import Register


@hookimpl
def register_algorithms(register: Register) -> None:
    """Exploration, and learning from it."""
    register("explore", "agentgym_evol.explore:Explore")
    register("evol", "agentgym_evol.evol:Evol")
