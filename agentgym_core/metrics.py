"""metrics.jsonl: a row for every training step and every evaluation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_core.errors import CheckpointError
from agentgym_core.files import append_json_line, read_json_lines, write_json_lines
from agentgym_core.ranks import Ranks

Row = dict[str, Any]


def is_time(key: str) -> bool:
    """Whether a key measures time: the only values in which two runs with one seed may differ."""
    return key == "seconds" or key.endswith(("_seconds", "_per_second"))


class MetricsLog:
    """Rows on disk and in memory. A resumed run forgets the rows after its checkpoint."""

    def __init__(self, path: Path, rows: Sequence[Row] | None = None) -> None:
        """Read the file; or be given its `rows`, and leave it to another process to write them."""
        self.path = path
        self.rows: list[Row] = _read(path) if rows is None else list(rows)
        self._writes = rows is None

    @classmethod
    def shared(cls, path: Path, ranks: Ranks) -> "MetricsLog":
        """Of every rank; the first one reads and writes the file."""
        if ranks.rank == 0:
            log = cls(path)
            ranks.gather(log.rows)
            return log
        return cls(path, ranks.gather([])[0])

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row, on disk before it returns."""
        if self._writes:
            append_json_line(self.path, row)
        self.rows.append(dict(row))

    def forget_after(self, stage: str, step: int) -> None:
        """Drop the rows of a stage that lie after a step."""
        self.rows = [r for r in self.rows if r["stage"] != stage or r["step"] <= step]
        if self._writes:
            write_json_lines(self.path, self.rows)

    def find(self, **keys: Any) -> list[Row]:
        """The rows with these values."""
        return [r for r in self.rows if all(r.get(key) == value for key, value in keys.items())]

    def best(self, stage: str, sampling: str) -> dict[str, Any] | None:
        """The step and success of a stage's best evaluation, the first of equals.

        Example: {"step": 50, "success": 0.8}
        """
        found = self.find(stage=stage, phase="evaluation", sampling=sampling)
        if not found:
            return None
        row = max(found, key=lambda row: row["success"])
        return {"step": row["step"], "success": row["success"]}


def _read(path: Path) -> list[Row]:
    rows = read_json_lines(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not {"stage", "step", "phase"} <= row.keys():
            raise CheckpointError(
                f"{path}: line {number} is no row of metrics, which has stage, step and phase. "
                "Remove that line, or bring the file back from a copy"
            )
    return rows
