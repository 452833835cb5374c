"""What this package registers."""

from agentgym_core import hookimpl


@hookimpl
def register_environments(register):
    """SearchQA, as `searchqa`."""
    register("searchqa", "agentgym_searchqa.environment:SearchQA")
