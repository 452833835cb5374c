"""`agentgym plugins`."""

import dataclasses
import json
import subprocess
from collections.abc import Iterable, Sequence

import click

from agentgym_core.errors import ConfigError
from agentgym_core.plugins import Plugins, installed_plugins


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--python",
    metavar="PATH",
    help="Of another interpreter, which holds environments that cannot live beside this one.",
)
def plugins(as_json: bool, python: str | None) -> None:
    """List what the installed packages register.

    Broken plugins are listed with their errors; they do not stop the others.
    """
    if python is not None:
        click.echo(_of_another(python, ["--json"] if as_json else []), nl=False)
        return
    found = installed_plugins()
    click.echo(_to_json(found) if as_json else "\n".join(_lines(found)))


def _of_another(python: str, flags: Sequence[str]) -> str:
    """What the same command prints there."""
    command = [python, "-P", "-m", "agentgym_core.cli", "plugins", *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"--python: {python} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:]
        raise ConfigError(
            f"--python: {python} cannot list plugins: {''.join(said)}. Install agentgym-core there"
        )
    return done.stdout


def _to_json(found: Plugins) -> str:
    return json.dumps(dataclasses.asdict(found), indent=2)


def _lines(found: Plugins) -> Iterable[str]:
    rows = [("KIND", "NAME", "PACKAGE", "VERSION", "HOOK")]
    rows += [
        (known.kind, known.name, known.package, known.version, known.hook)
        for known in found.registrations
    ]
    yield from _table(rows)
    if found.broken:
        yield "\nBroken plugins, which register nothing:"
    for plugin in found.broken:
        yield (
            f"  {plugin.package} {plugin.version} (entry point {plugin.entry_point}): "
            f"{plugin.error}"
        )
    if found.left_out:
        packages = ", ".join(found.left_out)
        yield f"\nLeft out by AGENTGYM_LOAD_PLUGINS or AGENTGYM_BLOCK_PLUGINS: {packages}"


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
