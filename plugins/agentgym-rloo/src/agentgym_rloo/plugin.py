"""Registers RLOO and its advantage estimator."""

from agentgym_core import hookimpl


@hookimpl
def register_algorithms(register):
    """RLOO."""
    register("rloo", "agentgym_rloo.rloo:RLOO")


@hookimpl
def register_advantage_estimators(register):
    """Its credit: an episode against the mean of the other attempts at its task."""
    register("leave-one-out", "agentgym_rloo.leave_one_out:LeaveOneOut")
