"""The core's own subcommands of `agentgym`, named without importing any."""

from collections.abc import Mapping

COMMANDS: Mapping[str, tuple[str, str]] = {
    "train": ("agentgym_core.cli.train:train", "Train as a YAML file says."),
    "eval": ("agentgym_core.cli.eval:evaluate", "Evaluate a policy: success with its interval."),
    "serve": ("agentgym_core.cli.serve:serve", "Serve an environment over HTTP."),
    "demos": ("agentgym_core.cli.demos:demos", "Write episodes of an environment's expert."),
    "new": ("agentgym_core.cli.new:new", "Write a package with a component to begin with."),
    "check": ("agentgym_core.cli.check:check", "Hold a component to the contract of its kind."),
    "plugins": (
        "agentgym_core.cli.plugins:plugins",
        "List what the installed packages register.",
    ),
}
"""Name -> where its click command is, and the first line of its help."""
