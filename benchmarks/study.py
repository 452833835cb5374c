"""Many runs of one question: trained two at a time, read back, told in a table and a plot.

A run is `agentgym train` with a name of its own, which goes on from its last checkpoint and has
nothing to do once it is finished: a study that was stopped goes on with the same command.
"""

import concurrent.futures
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from agentgym_core.files import read_json_lines

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "benchmarks" / "studies"


@attrs.frozen
class Planned:
    """One run of a study."""

    name: str
    recipe: Path
    overrides: tuple[str, ...] = ()


@attrs.frozen
class Point:
    """One evaluation of a run."""

    episodes: int
    """Training episodes that had been played."""
    success: float


def train(runs: Sequence[Planned], output: Path, jobs: int) -> None:
    """Train all runs, each on one core; stop at the first that fails."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(_train, run, output) for run in runs]:
            future.result()


def _train(run: Planned, output: Path) -> None:
    command = [sys.executable, "-m", "agentgym_core.cli", "train", str(run.recipe)]
    command += [f"name={run.name}", f"output={output}", *run.overrides]
    print("training", run.name, flush=True)
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{run.name}: {' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    print("trained ", run.name, flush=True)


def curve(folder: Path, sampling: str = "t1") -> list[Point]:
    """The evaluations of a run, in order, against the episodes played before each."""
    episodes, points = 0, list[Point]()
    for row in read_json_lines(folder / "metrics.jsonl"):
        if row["phase"] == "train":
            episodes += int(row.get("episodes", 0))
        elif row["sampling"] == sampling:
            points.append(Point(episodes, row["success"]))
    return points


def rows(folder: Path, phase: str) -> list[dict[str, Any]]:
    """The run's rows of `train` or `evaluation`."""
    return [dict(r) for r in read_json_lines(folder / "metrics.jsonl") if r["phase"] == phase]


def table(curves: Mapping[str, Sequence[Sequence[Point]]]) -> str:
    """Start, end and gain of each kind of run over its seeds, as Markdown."""
    lines = [
        "| | episodes | start | end | gain | spread of the ends | above its start |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seeds in curves.items():
        starts, ends = ([run[at].success for run in seeds] for at in (0, -1))
        gain = statistics.mean(ends) - statistics.mean(starts)
        spread = max(ends) - min(ends)
        episodes = statistics.mean(run[-1].episodes for run in seeds)
        lines.append(
            f"| {name} | {episodes:.0f} | {_shown(starts)} | {_shown(ends)} | {gain:+.3f} "
            f"| {spread:.3f} | {'yes' if gain > spread else 'no'} |"
        )
    return "\n".join(lines)


def _shown(values: Sequence[float]) -> str:
    each = ", ".join(f"{value:.2f}" for value in values)
    return f"{statistics.mean(values):.3f} ({each})"


def draw(axis: Any, curves: Mapping[str, Sequence[Sequence[Point]]], title: str) -> None:
    """Mean success against episodes, with the range over seeds."""
    for name, seeds in curves.items():
        points = list(zip(*seeds, strict=True))
        x = [statistics.mean(p.episodes for p in at) for at in points]
        values = [[p.success for p in at] for at in points]
        [line] = axis.plot(x, [statistics.mean(v) for v in values], marker="o", label=name)
        low, high = [min(v) for v in values], [max(v) for v in values]
        axis.fill_between(x, low, high, alpha=0.12, color=line.get_color())
    axis.set(xlabel="training episodes", ylabel="success, held-out tasks", ylim=(0, 1), title=title)
    axis.legend()
