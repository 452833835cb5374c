"""Registers all that a search for treasure needs."""

from agentgym_core import hookimpl


@hookimpl
def register_environments(register):
    """A line of places."""
    register("treasure", "agentgym_treasure.environment:Treasure")


@hookimpl
def register_rewards(register):
    """Nearer is better."""
    register("nearness", "agentgym_treasure.learning:Nearness")


@hookimpl
def register_advantage_estimators(register):
    """Against the other attempts."""
    register("against-peers", "agentgym_treasure.learning:AgainstPeers")


@hookimpl
def register_round_schedulers(register):
    """A horizon that doubles."""
    register("doubling", "agentgym_treasure.learning:Doubling")
