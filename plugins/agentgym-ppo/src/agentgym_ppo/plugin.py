"""Registers PPO and its advantage estimators."""

from agentgym_core import hookimpl


@hookimpl
def register_algorithms(register):
    """PPO."""
    register("ppo", "agentgym_ppo.ppo:PPO")


@hookimpl
def register_advantage_estimators(register):
    """Credit from a critic: token by token, or turn by turn."""
    register("gae", "agentgym_ppo.gae:GAE")
    register("gae-turn", "agentgym_ppo.gae_turn:TurnGAE")
