"""The `agentgym` command. A subcommand is imported when it is called, not to list it."""

import importlib
import os
from collections.abc import Mapping

import click

from agentgym_core.errors import AgentGymError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "train": ("agentgym_core.cli.train:train", "Train as a YAML file says."),
    "eval": ("agentgym_core.cli.eval:evaluate", "Evaluate a policy: success with its interval."),
    "demos": ("agentgym_core.cli.demos:demos", "Write episodes of an environment's expert."),
    "plugins": (
        "agentgym_core.cli.plugins:plugins",
        "List what the installed packages register.",
    ),
}
"""Name -> where its click command is, and the first line of its help."""


class _CleanError(click.ClickException):
    """One line on stderr in place of a traceback."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except AgentGymError as error:
            if os.environ.get("AGENTGYM_TRACEBACK"):
                raise
            raise _CleanError(str(error)) from error


@click.group(cls=_LazyGroup, epilog="AGENTGYM_TRACEBACK=1 shows where an error was raised.")
@click.version_option(package_name="agentgym-core", prog_name="agentgym")
def main() -> None:
    """Train language-model agents with multi-turn reinforcement learning."""
    # Threads of OpenMP spin while they wait for each other. Where anything else runs on the same
    # cores, they spin on the time of the one they wait for: training was ten times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
