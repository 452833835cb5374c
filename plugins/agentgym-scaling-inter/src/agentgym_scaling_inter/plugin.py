"""Registers the horizon that grows in stages."""

from agentgym_core import hookimpl


@hookimpl
def register_round_schedulers(register):
    """ScalingInter-RL."""
    register("scaling-inter", "agentgym_scaling_inter.step_rounds:StepRoundsScheduler")
