"""Weights & Biases."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from agentgym_core.files import read_json_lines, write_text
from agentgym_core.protocols import RunInfo, Tracker, Tracking
from agentgym_core.tracking import import_extra, scalars


@attrs.frozen(kw_only=True)
class WandbTracker(Tracker):
    """Logs to a project of Weights & Biases; the key and the server are W&B's own settings.

    A row goes there under its number in `metrics.jsonl`, and each metric is drawn over the step of
    its stage. A run that goes on keeps its id, and the steps since the last checkpoint, which come
    again, keep their numbers. Numbers that W&B has seen are passed over: the first writing stands.
    """

    project: str
    entity: str | None = None
    """User or team; null is W&B's default."""
    group: str | None = None
    """Runs of one group are shown together."""
    tags: tuple[str, ...] = ()
    mode: Literal["online", "offline", "disabled"] | None = None
    """`offline` keeps everything in `wandb/`, for `wandb sync`; null is as WANDB_MODE says."""

    def start(self, run: RunInfo) -> Tracking:
        """Begin a run of W&B, or go on with the one of this run directory."""
        wandb = import_extra("wandb", "wandb")
        started = wandb.init(
            project=self.project,
            entity=self.entity,
            group=self.group,
            tags=self.tags,
            mode=self.mode,
            name=run.name,
            id=_run_id(run.folder / "wandb" / "run-id"),
            resume="allow",
            dir=str(run.folder),
            config=dict(run.config),
        )
        return _WandbRun(started, run.folder / "metrics.jsonl")


def _run_id(path: Path) -> str:
    """One id for each run directory, wherever it is moved."""
    if not path.exists():
        write_text(path, uuid.uuid4().hex[:12] + "\n")
    return path.read_text(encoding="utf-8").strip()


class _WandbRun(Tracking):
    def __init__(self, run: Any, metrics: Path) -> None:
        self._run = run
        self._metrics = metrics
        self._number: int | None = None
        self._stages: set[str] = set()

    def log(self, row: Mapping[str, Any]) -> None:
        if self._number is None:  # the row is the last one in the file
            self._number = len(read_json_lines(self._metrics)) - 1
        else:
            self._number += 1
        if self._number < self._run.step:
            return
        step = f"{row['stage']}/step"
        if row["stage"] not in self._stages:
            self._run.define_metric(f"{row['stage']}/*", step_metric=step)
            self._stages.add(row["stage"])
        values = {**scalars(row), step: row["step"]}
        self._run.log(values, step=self._number, commit=True)

    def close(self) -> None:
        self._run.finish()
