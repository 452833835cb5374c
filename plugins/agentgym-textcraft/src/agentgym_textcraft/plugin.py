"""What this package registers."""

from agentgym_core import hookimpl


@hookimpl
def register_environments(register):
    """TextCraft, as `textcraft`."""
    register("textcraft", "agentgym_textcraft.environment:TextCraft")
