"""Registers GRPO and its advantage estimator."""

from agentgym_core import hookimpl


@hookimpl
def register_algorithms(register):
    """GRPO."""
    register("grpo", "agentgym_grpo.grpo:GRPO")


@hookimpl
def register_advantage_estimators(register):
    """Its credit: an episode against the other attempts at its task."""
    register("group-relative", "agentgym_grpo.group_relative:GroupRelative")
