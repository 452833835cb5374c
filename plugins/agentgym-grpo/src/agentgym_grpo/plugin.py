"""Registers GRPO, its advantage estimators and its punishment of length."""

from agentgym_core import hookimpl


@hookimpl
def register_algorithms(register):
    """GRPO."""
    register("grpo", "agentgym_grpo.grpo:GRPO")


@hookimpl
def register_advantage_estimators(register):
    """Its credit: an episode against the other attempts at its task, a turn against its like."""
    register("group-relative", "agentgym_grpo.group_relative:GroupRelative")
    register("gigpo", "agentgym_grpo.gigpo:GiGPO")


@hookimpl
def register_rewards(register):
    """DAPO's."""
    register("soft-overlong", "agentgym_grpo.soft_overlong:SoftOverlong")
