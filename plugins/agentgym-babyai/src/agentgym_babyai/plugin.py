"""What this package registers."""

from agentgym_core import hookimpl


@hookimpl
def register_environments(register):
    """BabyAI, as `babyai`."""
    register("babyai", "agentgym_babyai.environment:BabyAI")
