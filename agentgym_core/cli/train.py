"""`agentgym train`."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import get_args

import click

from agentgym_core.catalog import Catalog
from agentgym_core.cli.console import Console, format_seconds, notes_shown, success_table
from agentgym_core.config import Resume, RunConfig, load_config
from agentgym_core.errors import Interrupted
from agentgym_core.fork import fork as fork_run
from agentgym_core.learning_curve import plot_learning
from agentgym_core.metrics import MetricsLog
from agentgym_core.ranks import on_first
from agentgym_core.train import connected
from agentgym_core.train import train as train_run

_AGAIN = "The same command"


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option(
    "--resume",
    type=click.Choice(get_args(Resume)),
    default="auto",
    show_default=True,
    help="Go on with the run directory if it exists; it must exist; it must not.",
)
@click.option(
    "--fork", metavar="NAME", help="Begin a run of that name from the state of the one in CONFIG."
)
@click.pass_context
def train(
    context: click.Context,
    config: Path,
    overrides: tuple[str, ...],
    resume: Resume,
    fork: str | None,
) -> None:
    """Train as a YAML file says.

    OVERRIDES change single keys: training.num_steps=10 'rounds.rounds=[4, 8]'.

    A run goes on where it was stopped if it is started again with the same configuration.
    """
    run = load_config(config, overrides, Catalog.installed())
    start = time.monotonic()
    with connected(run) as ranks, notes_shown(first=ranks.rank == 0):
        if fork is not None:
            run = on_first(ranks, lambda run=run: fork_run(run, fork))
        try:
            steps = {stage.name: stage.training.num_steps for stage in run.stages}
            asyncio.run(train_run(run, Console(steps), resume, ranks))
        except Interrupted as stopped:
            if ranks.rank == 0:
                again = f"Give it name={run.name} in place of --fork, and it" if fork else _AGAIN
                with contextlib.suppress(OSError):  # the terminal may be gone
                    click.echo(f"\nStopped. {again} goes on from {run.folder}.")
            ranks.gather("stopped")  # a launcher kills the others when the first has ended so
            context.exit(128 + stopped.signal)
    if ranks.rank == 0:
        with contextlib.suppress(OSError):  # the run is whole, whether or not it can say so
            seconds = time.monotonic() - start
            _summarize(run.folder, run.name, seconds, evaluated_tasks(run))


def evaluated_tasks(run: RunConfig) -> str:
    """What the evaluations played, in words."""
    splits = dict.fromkeys(stage.evaluation.split for stage in run.stages if stage.evaluation)
    return f"tasks of {' and '.join(splits)}" if "train" in splits else "held-out tasks"


def _summarize(folder: Path, name: str, seconds: float, evaluated: str = "held-out tasks") -> None:
    log = MetricsLog(folder / "metrics.jsonl")
    plotted = False
    try:
        plotted = plot_learning(log.rows, folder / "learning.png", name)
    except ModuleNotFoundError as error:  # the run is whole without its picture
        click.echo(f"\n{error}")
    table = success_table(log.rows)
    if table:
        click.echo(f"\nSuccess on {evaluated}, with its 95% interval:\n{table}")
    click.echo(f"\nDone in {format_seconds(seconds)}. The run lies in {folder}:")
    click.echo("  metrics.jsonl, rollouts/, checkpoints/, policies/" + ", learning.png" * plotted)
    click.echo(f"Next: agentgym eval {folder}")
