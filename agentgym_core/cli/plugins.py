"""`agentgym plugins`."""

import dataclasses
import json
from collections.abc import Iterable, Sequence

import click

from agentgym_core.plugins import Plugins, installed_plugins


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plugins(as_json: bool) -> None:
    """List what the installed packages register.

    Broken plugins are listed with their errors; they do not stop the others.
    """
    found = installed_plugins()
    click.echo(_to_json(found) if as_json else "\n".join(_lines(found)))


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
