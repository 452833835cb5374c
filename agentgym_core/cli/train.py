"""`agentgym train`."""

import asyncio
import time
from pathlib import Path

import click

from agentgym_core.catalog import Catalog
from agentgym_core.cli.console import Console, format_seconds, success_table
from agentgym_core.config import load_config
from agentgym_core.errors import Interrupted
from agentgym_core.learning_curve import plot_learning
from agentgym_core.metrics import MetricsLog
from agentgym_core.run import train as train_run


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.pass_context
def train(context: click.Context, config: Path, overrides: tuple[str, ...]) -> None:
    """Train as a YAML file says.

    OVERRIDES change single keys: training.num_steps=10 'rounds.rounds=[4, 8]'.

    A run goes on where it was stopped if it is started again with the same configuration.
    """
    run = load_config(config, overrides, Catalog.installed())
    start = time.monotonic()
    try:
        folder = asyncio.run(
            train_run(run, Console({stage.name: stage.training.num_steps for stage in run.stages}))
        )
    except Interrupted:
        click.echo(f"\nStopped, and saved in {run.folder}. The same command goes on from here.")
        context.exit(130)
    log = MetricsLog(folder / "metrics.jsonl")
    plotted = plot_learning(log.rows, folder / "learning.png", run.name)
    table = success_table(log.rows)
    if table:
        click.echo(f"\nSuccess on held-out tasks, with its 95% interval:\n{table}")
    click.echo(f"\nDone in {format_seconds(time.monotonic() - start)}. The run lies in {folder}:")
    click.echo("  metrics.jsonl, rollouts/, checkpoints/, policies/" + ", learning.png" * plotted)
    click.echo(f"Next: agentgym eval {folder}")
