"""TensorBoard: event files of what `metrics.jsonl` holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from agentgym_core.files import read_json_lines
from agentgym_core.protocols import RunInfo, Tracker, Tracking
from agentgym_core.tracking import import_extra, scalars


@attrs.frozen(kw_only=True)
class TensorBoardTracker(Tracker):
    """Writes `tensorboard/` in the run directory, for `tensorboard --logdir runs`.

    It only repeats `metrics.jsonl`: a run that goes on writes it anew, from all rows. So the steps
    since the last checkpoint, which come again, do not stand there twice.
    """

    def start(self, run: RunInfo) -> Tracking:
        """Nothing is written before the first row."""
        writers = import_extra("tensorboardX", "tensorboard")
        return _EventFiles(writers, run.folder / "tensorboard", run.folder / "metrics.jsonl")


class _EventFiles(Tracking):
    def __init__(self, writers: Any, folder: Path, metrics: Path) -> None:
        self._writers = writers
        self._folder = folder
        self._metrics = metrics
        self._writer: Any = None

    def log(self, row: Mapping[str, Any]) -> None:
        if self._writer is None:
            self._writer = self._begin()  # the row is among those of the file
            rows = read_json_lines(self._metrics)
        else:
            rows = [row]
        for each in rows:
            for name, value in scalars(each).items():
                self._writer.add_scalar(name, value, each["step"])
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _begin(self) -> Any:
        """At the first row: by then the run has dropped from metrics.jsonl what comes again."""
        for old in self._folder.glob("events.*.agentgym"):
            old.unlink()
        # The purge reaches a TensorBoard that is open and remembers the files of before.
        return self._writers.SummaryWriter(
            logdir=str(self._folder), purge_step=0, filename_suffix=".agentgym"
        )
