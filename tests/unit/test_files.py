import json
import subprocess
import sys

import pytest

from agentgym_core.checkpoint import keep_last, latest, save
from agentgym_core.errors import CheckpointError
from agentgym_core.files import new_folder, read_json_lines, write_json_lines, write_text
from agentgym_core.metrics import MetricsLog, is_time


class FakeTrainer:
    def __init__(self, error=None):
        self.error = error

    def save(self, folder):
        (folder / "weights").write_text("1")
        if self.error:
            raise self.error


def test_a_folder_is_whole_or_absent(tmp_path):
    def fail():
        with new_folder(tmp_path / "a") as aside:
            (aside / "half").write_text("1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "a") as aside:
        (aside / "whole").write_text("1")
    assert (tmp_path / "a" / "whole").read_text() == "1"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_kill_while_writing_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    code = (
        "import os, signal, sys, agentgym_core.files as f\n"
        "f.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "f.write_text(f.Path(sys.argv[1]), 'new')"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert result.returncode == -9
    assert path.read_text() == "old"


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_json_lines(path, [{"a": 1}, {"a": "é"}])
    with path.open("a") as file:
        file.write('{"a": 3')
    assert read_json_lines(path) == [{"a": 1}, {"a": "é"}]
    assert read_json_lines(tmp_path / "absent.jsonl") == []


def test_checkpoints(tmp_path):
    assert latest(tmp_path) is None
    for step in (1, 2, 10):
        save(tmp_path, step, {"rounds_state": [step]}, FakeTrainer())
    found = latest(tmp_path)
    assert (found.step, found.state["rounds_state"]) == (10, [10])
    assert (found.folder / "weights").exists()
    keep_last(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000002", "step-000010"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones(tmp_path):
    save(tmp_path, 1, {}, FakeTrainer())
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*step-000002.*full"):
        save(tmp_path, 2, {}, FakeTrainer(OSError("disk full")))
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]
    (tmp_path / "step-000001" / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="Remove that checkpoint"):
        latest(tmp_path)


def test_the_metrics_log_forgets_what_lies_after_a_checkpoint(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for stage, step in (("sft", 1), ("grpo", 1), ("grpo", 2), ("grpo", 3)):
        log.append({"stage": stage, "step": step, "seconds": 0.1})
    log.forget_after("grpo", 1)
    assert [(r["stage"], r["step"]) for r in log.rows] == [("sft", 1), ("grpo", 1)]
    assert MetricsLog(log.path).rows == log.rows
    assert log.find(stage="grpo", step=1) == [{"stage": "grpo", "step": 1, "seconds": 0.1}]
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()] == [1, 1]


def test_times_are_told_apart():
    keys = ["seconds", "episode_seconds", "tokens_per_second", "success", "seconds_of_what"]
    assert [key for key in keys if is_time(key)] == keys[:3]
