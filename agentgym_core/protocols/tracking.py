"""Where metrics go beside `metrics.jsonl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs


@attrs.frozen(kw_only=True)
class RunInfo:
    """What a tracker is told of a run."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    """The resolved configuration, as in `config.yaml`."""


class Tracking(Protocol):
    """A started tracker."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of `metrics.jsonl`, which has `stage`, `phase` and `step` among its keys.

        After a resume the steps since the last checkpoint come again.
        """
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


class Tracker(Protocol):
    """Where metrics go beside `metrics.jsonl`."""

    def start(self, run: RunInfo) -> Tracking:
        """Begin, or go on with the run of that folder."""
        ...
