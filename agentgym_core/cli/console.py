"""What a run says while it goes on, and at its end."""

import contextlib
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import attrs
import click

from agentgym_core.metrics import Row


@attrs.define
class Console:
    """Prints rows of metrics.jsonl as they come.

    A step that played episodes has a line of its own; steps that only learn, which are many and
    fast, have about twenty a stage.
    """

    num_steps: Mapping[str, int]
    """By stage."""
    _starts: dict[str, tuple[float, int]] = attrs.field(factory=dict[str, tuple[float, int]])

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Print a row. Where nobody can read it any more, the run goes on in silence."""
        with contextlib.suppress(OSError):
            self._print(row)

    def _print(self, row: Mapping[str, Any]) -> None:
        total = self.num_steps[row["stage"]]
        start, first = self._starts.setdefault(
            row["stage"], (time.monotonic() - row["seconds"], row["step"] - 1)
        )
        head = f"{row['stage']:<8} {row['step']:>5}/{total}"
        if row["phase"] == "evaluation":
            click.echo(f"{head}  evaluation, {row['sampling']}: {format_success(row)}")
            return
        played = "horizon" in row
        if not played and row["step"] % max(1, total // 20) and row["step"] != total:
            return
        done = max(1, row["step"] - first)
        left = (time.monotonic() - start) / done * (total - row["step"])
        facts = _played(row) if played else f"loss {row.get('loss', 0.0):.4f}"
        click.echo(f"{head}  {facts}  {format_seconds(left)} left")


def _played(row: Mapping[str, Any]) -> str:
    return (
        f"success {row.get('success', 0.0):.3f}  reward {row.get('reward', 0.0):.3f}  "
        f"horizon {row['horizon']:>2}  {row['tokens_per_second']:5.0f} tokens/s{_notes(row)}"
    )


def _notes(row: Mapping[str, Any]) -> str:
    """What a step should not be silent about."""
    notes = [
        f"  {row.get(key, 0.0):.0%} {words}"
        for key, words, least in (("tokens_cut", "out of tokens", 0.5), ("dropped", "dropped", 0.0))
        if row.get(key, 0.0) > least
    ]
    return "".join(notes) + "  no update" * bool(row.get("update_skipped"))


def format_success(row: Mapping[str, Any]) -> str:
    """Example: 0.870 [0.805, 0.915]."""
    return f"{row['success']:.3f} [{row['success_low']:.3f}, {row['success_high']:.3f}]"


def format_seconds(seconds: float) -> str:
    """Example: 1h02m, 3m20s, 8s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def success_table(rows: Sequence[Row]) -> str:
    """The first and last evaluation of each stage, a line for each way of sampling."""
    evaluations = [row for row in rows if row["phase"] == "evaluation"]
    lines: list[str] = []
    for stage in dict.fromkeys(row["stage"] for row in evaluations):
        own = [row for row in evaluations if row["stage"] == stage]
        ends = {own[0]["step"], own[-1]["step"]}
        for row in (row for row in own if row["step"] in ends):
            label = f"{stage} after {row['step']} steps" if row["step"] else f"{stage} at its start"
            if row["sampling"] == "demonstrator":
                label = f"demonstrator of {stage}"
            sampling = "" if row["sampling"] == "demonstrator" else row["sampling"]
            lines.append(f"  {label:<28} {sampling:<8} {format_success(row)}")
    return "\n".join(lines)


@contextlib.contextmanager
def notes_shown(*, first: bool) -> Generator[None]:
    """Say on stderr what is logged: every warning, and what AgentGym's own packages note.

    Args:
        first: whether this is the first rank, which notes for all.
    """

    def says(record: logging.LogRecord) -> bool:
        noted = first and record.name.startswith("agentgym_")
        return noted or record.levelno >= logging.WARNING

    root, handler = logging.getLogger(), logging.StreamHandler()
    handler.addFilter(says)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
