"""Registers the horizons that grow."""

from agentgym_core import hookimpl


@hookimpl
def register_round_schedulers(register):
    """ScalingInter-RL: at fixed steps, evenly, or when the run says so."""
    register("scaling-inter", "agentgym_scaling_inter.step_rounds:StepRoundsScheduler")
    register("scaling-inter-linear", "agentgym_scaling_inter.linear_rounds:LinearRoundsScheduler")
    register(
        "scaling-inter-adaptive", "agentgym_scaling_inter.adaptive_rounds:AdaptiveRoundsScheduler"
    )
