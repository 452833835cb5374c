"""The trackers that are built in, against the packages that they write with."""

import json
import os
import subprocess
import sys
import time
import warnings

from agentgym_core.metrics import MetricsLog
from agentgym_core.protocols import RunInfo
from agentgym_core.trackers.tensorboard import TensorBoardTracker
from agentgym_core.trackers.wandb import WandbTracker


def row(stage, step, loss, **more):
    return {"stage": stage, "phase": "train", "step": step, "loss": loss, **more}


def evaluation(step, sampling, success):
    keys = {"stage": "grpo", "phase": "evaluation", "step": step, "sampling": sampling}
    return {**keys, "success": success}


ROWS = [
    row("sft", 1, 2.0),
    row("sft", 2, 1.0),
    evaluation(0, "greedy", 0.25),
    evaluation(0, "t1", 0.5),
    row("grpo", 1, 0.5),
]


def follow(folder, tracker, rows, keep=None):
    """Log rows as a run does; `keep` is the stage and step of the checkpoint it resumes from."""
    metrics = MetricsLog(folder / "metrics.jsonl")
    started = tracker.start(RunInfo(name="small", folder=folder, config={"seed": 3}))
    if keep:
        metrics.forget_after(*keep)
    for each in rows:
        metrics.append(each)
        started.log(each)
    started.close()


def events(folder):
    """Points by name, as TensorBoard reads them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard's own imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {
        name: [(point.step, point.value) for point in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


POINTS = {
    "sft/train/loss": [(1, 2.0), (2, 1.0)],
    "grpo/evaluation/greedy/success": [(0, 0.25)],
    "grpo/evaluation/t1/success": [(0, 0.5)],
    "grpo/train/loss": [(1, 0.5)],
}


def test_tensorboard_reads_every_number(tmp_path):
    follow(tmp_path, TensorBoardTracker(), ROWS)
    assert events(tmp_path) == POINTS


def test_tensorboard_after_a_resume_has_every_step_once(tmp_path):
    stale = [row("grpo", 2, 99.0), row("grpo", 3, 99.0)]
    follow(tmp_path, TensorBoardTracker(), [*ROWS, *stale])
    follow(tmp_path, TensorBoardTracker(), [row("grpo", 2, 0.25)], keep=("grpo", 1))
    assert events(tmp_path) == {**POINTS, "grpo/train/loss": [(1, 0.5), (2, 0.25)]}


def test_tensorboard_replaces_its_own_file_and_touches_no_other(tmp_path, monkeypatch):
    other = tmp_path / "tensorboard" / "events.out.tfevents.1.host"
    other.parent.mkdir()
    other.write_bytes(b"")
    follow(tmp_path, TensorBoardTracker(), ROWS)
    monkeypatch.setattr("time.time", lambda now=time.time: now() + 10)  # files are named after it
    follow(tmp_path, TensorBoardTracker(), [row("grpo", 2, 0.25)])
    assert len(list(other.parent.iterdir())) == 2
    assert other.exists()


def test_tensorboard_writes_nothing_before_the_first_row(tmp_path):
    follow(tmp_path, TensorBoardTracker(), [])
    assert not (tmp_path / "tensorboard").exists()


OFFLINE = """
import json, sys
from pathlib import Path
from agentgym_core.metrics import MetricsLog
from agentgym_core.protocols import RunInfo
from agentgym_core.trackers.wandb import WandbTracker
folder = Path(sys.argv[1])
tracker = WandbTracker(project="mazes", tags=("a",), mode="offline")
started = tracker.start(RunInfo(name="small", folder=folder, config={"seed": 3}))
metrics = MetricsLog(folder / "metrics.jsonl")
for row in json.loads(sys.argv[2]):
    metrics.append(row)
    started.log(row)
started.close()
"""


def records(file):
    """What W&B's own file holds: a header of 7 bytes, then LevelDB's log of whole records."""
    from wandb.proto import wandb_internal_pb2

    content = file.read_bytes()
    assert len(content) < 32768, "one block, in which no record is split"
    place = 7
    while place + 7 <= len(content):
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content[place + 7 : place + 7 + length])
        yield record
        place += 7 + length


def history(folder):
    """The rows of an offline run, and its settings."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    found = list(records(file))
    rows = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in each.history.item}
        for each in found
        if each.HasField("history")
    ]
    return rows, next(record.run for record in found if record.HasField("run"))


def test_wandb_holds_every_number_offline(tmp_path):
    subprocess.run(
        [sys.executable, "-c", OFFLINE, str(tmp_path), json.dumps(ROWS)],
        env={**os.environ, "WANDB_SILENT": "true", "WANDB_API_KEY": ""},
        check=True,
        timeout=60,
    )
    rows, run = history(tmp_path)
    assert (run.project, run.display_name, list(run.tags)) == ("mazes", "small", ["a"])
    assert run.run_id == (tmp_path / "wandb" / "run-id").read_text().strip()
    found = [{k: v for k, v in each.items() if not k.startswith("_")} for each in rows]
    assert found == [
        {"sft/train/loss": 2.0, "sft/step": 1},
        {"sft/train/loss": 1.0, "sft/step": 2},
        {"grpo/evaluation/greedy/success": 0.25, "grpo/step": 0},
        {"grpo/evaluation/t1/success": 0.5, "grpo/step": 0},
        {"grpo/train/loss": 0.5, "grpo/step": 1},
    ]
    assert [each["_step"] for each in rows] == [0, 1, 2, 3, 4]


class RecordedWandb:
    """W&B's online behaviour on resume, as far as it is used: a run of one id goes on."""

    def __init__(self):
        self.logged = {}
        self.settings = []
        self.step = 0
        self.finished = 0

    def init(self, **settings):
        self.settings.append(settings)
        return self

    def define_metric(self, name, step_metric):
        self.settings.append((name, step_metric))

    def log(self, values, *, step, commit):
        assert commit
        assert step >= self.step
        self.logged[step] = values
        self.step = step + 1

    def finish(self):
        self.finished += 1


def test_wandb_goes_on_with_its_run_and_sends_no_step_twice(tmp_path, monkeypatch):
    wandb = RecordedWandb()
    monkeypatch.setattr("agentgym_core.trackers.wandb.import_extra", lambda *_: wandb)
    tracker = WandbTracker(project="mazes", entity="us")
    follow(tmp_path, tracker, [*ROWS, row("grpo", 2, 0.4)])
    follow(tmp_path, tracker, [row("grpo", 2, 99.0), row("grpo", 3, 0.3)], keep=("grpo", 1))
    assert [values.get("grpo/train/loss") for values in wandb.logged.values()] == [
        None, None, None, None, 0.5, 0.4, 0.3,
    ]  # fmt: skip
    assert list(wandb.logged) == list(range(7))
    first, *_, second, _ = wandb.settings
    assert first == second
    assert first["resume"] == "allow"
    assert first["config"] == {"seed": 3}
    assert ("sft/*", "sft/step") in wandb.settings
    assert wandb.finished == 2
