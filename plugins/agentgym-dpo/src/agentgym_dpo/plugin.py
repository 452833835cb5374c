"""Registers DPO."""

from agentgym_core import hookimpl
from agentgym_core.hookspecs import Register


@hookimpl
def register_algorithms(register: Register) -> None:
    """Learning from preferences between trajectories."""
    register("dpo", "agentgym_dpo.dpo:DPO")
