"""Registers REINFORCE++ and its advantage estimators."""

from agentgym_core import hookimpl


@hookimpl
def register_algorithms(register):
    """REINFORCE++."""
    register("reinforce-pp", "agentgym_reinforce_pp.reinforce_pp:ReinforcePP")


@hookimpl
def register_advantage_estimators(register):
    """Its credit, normalised over the whole batch: without groups, and against them."""
    register("reinforce-pp", "agentgym_reinforce_pp.normalised:NormalisedReturns")
    register("reinforce-pp-baseline", "agentgym_reinforce_pp.normalised:NormalisedBaseline")
