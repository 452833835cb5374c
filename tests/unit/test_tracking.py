"""Trackers are shown every row, and none of them can stop a run."""

import importlib
import logging
from typing import Any

import attrs
import pytest

from agentgym_core.errors import ConfigError
from agentgym_core.protocols import RunInfo, Tracker, Tracking
from agentgym_core.trackers.tensorboard import TensorBoardTracker
from agentgym_core.trackers.wandb import WandbTracker
from agentgym_core.tracking import scalars, tracking

ROWS = [
    {"stage": "grpo", "phase": "evaluation", "step": 0, "sampling": "t1", "success": 0.25},
    {"stage": "grpo", "phase": "train", "step": 1, "reward": 0.5, "reward/progress": 2},
]


@attrs.frozen(kw_only=True)
class Notebook(Tracker):
    """Notes what it is told, and fails where it is told to."""

    notes: list[Any] = attrs.field(factory=list)
    fault: str = ""

    def start(self, run):
        return Open(self, self.note("start", run.name))

    def note(self, what, value=None):
        if self.fault == what:
            raise RuntimeError(f"no {what}")
        self.notes.append((what, value))


class Open(Tracking):
    def __init__(self, book, _):
        self.book = book

    def log(self, row):
        self.book.note("log", row)

    def close(self):
        self.book.note("close")


def info(folder):
    return RunInfo(name="small", folder=folder, config={"seed": 3})


def follow(folder, *trackers, rows=ROWS):
    reported = []
    with tracking(trackers, info(folder), reported.append) as report:
        for row in rows:
            report(row)
    return reported


def test_every_tracker_is_shown_every_row_and_closed(tmp_path):
    first, second = Notebook(), Notebook()
    assert follow(tmp_path, first, second) == ROWS
    expected = [("start", "small"), *(("log", row) for row in ROWS), ("close", None)]
    assert first.notes == second.notes == expected


def test_trackers_are_closed_when_the_run_fails(tmp_path):
    book = Notebook()
    with pytest.raises(ZeroDivisionError), tracking([book], info(tmp_path), print):
        raise ZeroDivisionError
    assert book.notes == [("start", "small"), ("close", None)]


def test_one_that_fails_over_a_row_is_warned_about_once_and_switched_off(tmp_path, caplog):
    broken, whole = Notebook(fault="log"), Notebook()
    assert follow(tmp_path, broken, whole) == ROWS
    assert broken.notes == [("start", "small"), ("close", None)]
    assert len(whole.notes) == 4
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"Notebook (module {__name__}) failed and is switched off: RuntimeError: no log. The run "
        "goes on without it, and metrics.jsonl has every row"
    )


def test_one_that_fails_to_close_is_warned_about(tmp_path, caplog):
    assert follow(tmp_path, Notebook(fault="close"), after := Notebook()) == ROWS
    assert "RuntimeError: no close" in caplog.text
    assert after.notes[-1] == ("close", None)


def test_one_that_does_not_start_stops_the_run_before_its_first_step(tmp_path):
    before = Notebook()
    with pytest.raises(ConfigError) as error:
        follow(tmp_path, before, Notebook(fault="start"))
    assert str(error.value) == (
        f"trackers: Notebook (module {__name__}) does not start: RuntimeError: no start"
    )
    assert before.notes == [("start", "small"), ("close", None)]


def test_names_say_stage_phase_and_key():
    assert scalars(ROWS[0]) == {"grpo/evaluation/t1/success": 0.25}
    assert scalars(ROWS[1]) == {"grpo/train/reward": 0.5, "grpo/train/reward/progress": 2.0}
    labelled = {**ROWS[1], "note": "text", "nothing": None, "list": [1]}
    assert scalars(labelled) == scalars(ROWS[1])


@pytest.mark.parametrize(
    ("tracker", "module", "extra"),
    [
        (TensorBoardTracker(), "tensorboardX", "tensorboard"),
        (WandbTracker(project="mazes"), "wandb", "wandb"),
    ],
)
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, tracker, module, extra):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError) as error:
        follow(tmp_path, tracker)
    assert str(error.value) == (
        f'the tracker {extra} needs an extra: pip install "agentgym-core[{extra}]" '
        f"(No module named '{module}')"
    )
