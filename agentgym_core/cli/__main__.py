"""`python -m agentgym_core.cli` is the `agentgym` command."""

from agentgym_core.cli import main

main()
