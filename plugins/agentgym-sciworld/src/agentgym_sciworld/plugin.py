"""What this package registers."""

from agentgym_core import hookimpl


@hookimpl
def register_environments(register):
    """ScienceWorld, as `sciworld`."""
    register("sciworld", "agentgym_sciworld.environment:SciWorld")
