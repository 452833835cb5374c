"""The `agentgym` command. A subcommand is imported when it is called, not to list it.

The core's own subcommands are found without loading any plugin, so that a plugin which is broken
or slow does not stand in their way. Every other name is looked up among the plugins' commands.
"""

import importlib
import os

import click

from agentgym_core.commands import COMMANDS
from agentgym_core.errors import AgentGymError, ConfigError, PluginError
from agentgym_core.plugins import Registration, installed_plugins


class _CleanError(click.ClickException):
    """One line on stderr in place of a traceback."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(known.name for known in _plugin_commands()[0])]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name][0].partition(":")
            return getattr(importlib.import_module(module), name)
        if cmd_name.startswith("-"):  # a mistyped option, as click will say
            return None
        return _plugin_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])
        commands, problem = _plugin_commands()
        if commands:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(
                    [(known.name, f"{known.package} {known.version}") for known in commands]
                )
        if problem:
            with formatter.section("Plugins"):
                formatter.write(f"  {problem}\n")  # not wrapped: it may hold what to type

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except AgentGymError as error:
            if os.environ.get("AGENTGYM_TRACEBACK"):
                raise
            raise _CleanError(str(error)) from error
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            raise click.exceptions.Exit(130) from None


def _plugin_commands() -> tuple[list[Registration], str]:
    """What plugins add to the core's commands, and in words what keeps some of it out."""
    try:
        found = installed_plugins()
    except AgentGymError as error:
        return [], str(error)
    commands = [
        known
        for known in found.registrations
        if known.kind == "command" and known.name not in COMMANDS
    ]
    broken = ", ".join(plugin.package for plugin in found.broken)
    return commands, f"Broken: {broken}. See: agentgym plugins" if broken else ""


def _plugin_command(name: str) -> click.Command:
    """Import a plugin's command.

    Raises:
        ComponentNotFoundError: no plugin registers the name; says what is near.
        PluginError: what it names cannot be imported or is no click command.
    """
    from agentgym_core.catalog import Catalog  # slow, and no command of the core waits for it

    catalog = Catalog.installed()
    for known in catalog.plugins.registrations:
        if (known.kind, known.name) == ("command", name):
            command = known.load()
            if not isinstance(command, click.Command):
                raise PluginError(
                    f"{known.origin} is no click command. Decorate it with @click.command()"
                )
            return command
    raise catalog.not_found("command", name)


@click.group(cls=_LazyGroup, epilog="AGENTGYM_TRACEBACK=1 shows where an error was raised.")
@click.version_option(package_name="agentgym-core", prog_name="agentgym")
def main() -> None:
    """Train language-model agents with multi-turn reinforcement learning."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ConfigError("the working directory is gone: change into one that exists") from None
    # Threads of OpenMP spin while they wait for each other. Where anything else runs on the same
    # cores, they spin on the time of the one they wait for: training was ten times slower.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
