"""Trackers, live. Whatever becomes of one, the run goes on and `metrics.jsonl` is whole."""

import importlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

from agentgym_core.errors import AgentGymError, ConfigError
from agentgym_core.protocols import RunInfo, Tracker, Tracking
from agentgym_core.wording import one_line, origin

log = logging.getLogger(__name__)

Report = Callable[[Mapping[str, Any]], None]
"""Is shown every row of metrics.jsonl, after it is written."""

_LABELS = ("stage", "phase", "sampling", "step")


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row of metrics.jsonl, under the names that trackers give them.

    A name is `stage/phase/key`. Evaluations of one step differ in how they sampled, which therefore
    follows their phase. What identifies the row is no number of it: `step` is the point at which
    they are drawn.

    Example: {"stage": "grpo", "phase": "evaluation", "step": 50, "sampling": "greedy",
        "success": 0.8} -> {"grpo/evaluation/greedy/success": 0.8}
    """
    prefix = "/".join(row[key] for key in ("stage", "phase", "sampling") if key in row)
    return {
        f"{prefix}/{key}": float(value)
        for key, value in row.items()
        if key not in _LABELS and isinstance(value, int | float)
    }


@contextmanager
def tracking(trackers: Sequence[Tracker], run: RunInfo, report: Report) -> Generator[Report]:
    """Start the trackers; rows go to `report` and then to each of them. All are closed at the end.

    A tracker that raises over a row is warned about and shown no more of them.

    Raises:
        ConfigError: one of them does not start. Nothing has been played by then.
    """
    with ExitStack() as stack:
        started: list[_Live] = []
        for tracker in trackers:
            started.append(_start(tracker, run))
            stack.callback(started[-1].close)

        def report_to_all(row: Mapping[str, Any]) -> None:
            report(row)
            for live in started:
                live.log(row)

        yield report_to_all


def import_extra(module: str, extra: str) -> Any:
    """Import the package that a built-in tracker writes with.

    Raises:
        ConfigError: it is not installed; names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f'the tracker {extra} needs an extra: pip install "agentgym-core[{extra}]" '
            f"({one_line(error)})"
        ) from error


def _start(tracker: Tracker, run: RunInfo) -> "_Live":
    try:
        return _Live(tracker, tracker.start(run))
    except AgentGymError:
        raise
    except Exception as error:  # a service may refuse in any way
        raise ConfigError(
            f"trackers: {origin(tracker)} does not start: {type(error).__name__}: {one_line(error)}"
        ) from error


@attrs.define
class _Live:
    tracker: Tracker
    tracking: Tracking
    failed: bool = False

    def log(self, row: Mapping[str, Any]) -> None:
        if not self.failed:
            self._guard(self.tracking.log, row)

    def close(self) -> None:
        self._guard(self.tracking.close)

    def _guard(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            if not self.failed:
                log.warning(
                    "%s failed and is switched off: %s: %s. The run goes on without it, and "
                    "metrics.jsonl has every row",
                    origin(self.tracker),
                    type(error).__name__,
                    one_line(error),
                )
            self.failed = True
