import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys

import pytest

from agentgym_core.checkpoint import keep_last, latest, latest_until, save
from agentgym_core.errors import CheckpointError, RunLockedError
from agentgym_core.files import (
    new_folder,
    read_json_lines,
    remove_leftovers,
    write_json_lines,
    write_text,
)
from agentgym_core.lock import locked
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
    for step in (1, 2, 3, 10):
        save(tmp_path, step, {"rounds_state": [step]}, FakeTrainer())
    found = latest(tmp_path)
    assert (found.step, found.state["rounds_state"]) == (10, [10])
    assert (found.folder / "weights").exists()
    keep_last(tmp_path, 2, best=1)
    assert names(tmp_path) == ["step-000001", "step-000003", "step-000010"]
    assert latest_until(tmp_path, 9).step == 3


def test_a_checkpoint_is_put_aside_before_it_is_removed(tmp_path, monkeypatch):
    for step in (1, 2):
        save(tmp_path, step, {}, FakeTrainer())
    monkeypatch.setattr("shutil.rmtree", lambda *args, **options: None)  # a kill
    keep_last(tmp_path, 1)
    monkeypatch.undo()
    assert names(tmp_path) == [".step-000001.old", "step-000002"]
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-000002"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: (path / "weights").write_text("2"), "weights has other content"),
        (lambda path: (path / "weights").write_text("11"), "weights has 2 bytes of 1"),
        (lambda path: (path / "weights").unlink(), "weights is missing"),
        (lambda path: (path / "state.json").write_text("{"), "state.json has 1 bytes"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json .*cannot be read"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_replaced(tmp_path, caplog, damage, says):
    for step in (1, 2):
        save(tmp_path, step, {}, FakeTrainer())
    damage(tmp_path / "step-000002")
    assert latest(tmp_path).step == 1
    assert re.search(rf"step-000002 is not whole and is passed over: {says}", caplog.text)
    save(tmp_path, 2, {}, FakeTrainer())
    assert latest(tmp_path).step == 2
    damage(tmp_path / "step-000001")
    damage(tmp_path / "step-000002")
    with pytest.raises(CheckpointError, match=rf"none of the 2 checkpoints .*{says}.*Remove that"):
        latest(tmp_path)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("full")])
def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones(tmp_path, error):
    save(tmp_path, 1, {}, FakeTrainer())
    with pytest.raises(CheckpointError, match=r"cannot write .*step-000002: .*give the same comm"):
        save(tmp_path, 2, {}, FakeTrainer(error))
    assert names(tmp_path) == ["step-000001"]
    assert latest(tmp_path).step == 1


@pytest.mark.parametrize(
    ("number", "mend"),
    [(errno.ENOSPC, "Free some space there"), (errno.EROFS, "Make it writable")],
)
def test_a_disk_that_says_no_is_named_with_its_mend(tmp_path, monkeypatch, number, mend):
    write_text(tmp_path / "old", "old")

    def refuse(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    for write in (
        lambda: write_text(tmp_path / "old", "new"),
        lambda: MetricsLog(tmp_path / "rows").append({"a": 1}),
        lambda: save(tmp_path / "points", 1, {}, FakeTrainer()),
    ):
        with pytest.raises(
            CheckpointError, match=rf"cannot write /.*{os.strerror(number)}. {mend}"
        ):
            write()
    assert (tmp_path / "old").read_text() == "old"
    assert names(tmp_path) == ["old", "points", "rows"]
    assert names(tmp_path / "points") == []


def test_a_line_that_is_not_json_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a\n{"a": 3}\n')
    with pytest.raises(CheckpointError, match=r"rows.jsonl: line 2 is not JSON"):
        read_json_lines(tmp_path / "rows.jsonl")


def test_what_a_kill_left_is_removed(tmp_path):
    for name in (".step-000001.ab", "step-000001"):
        (tmp_path / name).mkdir()
    for name in (".lock", ".rows.jsonl.cd", "rows.jsonl"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".lock", "rows.jsonl", "step-000001"]


HOLD = """
import sys, time
from pathlib import Path
from agentgym_core.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time_and_a_kill_frees(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    busy = f"worked on by process {holder.pid} on {re.escape(socket.gethostname())}. Wait for it"
    with pytest.raises(RunLockedError, match=busy), locked(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_file_system_without_locks_is_warned_about(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path):
        assert "cannot be locked (No locks available)" in caplog.text


def test_the_best_evaluation_is_the_first_of_equals(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.best("grpo", "greedy") is None
    for step, success in ((0, 0.2), (4, 0.5), (8, 0.5), (12, 0.4)):
        row = {"stage": "grpo", "phase": "evaluation", "sampling": "greedy", "step": step}
        log.append({**row, "success": success})
        log.append({**row, "sampling": "t1", "success": 0.9})
    assert log.best("grpo", "greedy") == {"step": 4, "success": 0.5}


def test_the_metrics_log_forgets_what_lies_after_a_checkpoint(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for stage, step in (("sft", 1), ("grpo", 1), ("grpo", 2), ("grpo", 3)):
        log.append({"stage": stage, "phase": "train", "step": step, "seconds": 0.1})
    log.forget_after("grpo", 1)
    assert [(r["stage"], r["step"]) for r in log.rows] == [("sft", 1), ("grpo", 1)]
    assert MetricsLog(log.path).rows == log.rows
    assert log.find(stage="grpo", step=1) == [
        {"stage": "grpo", "phase": "train", "step": 1, "seconds": 0.1}
    ]
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()] == [1, 1]


@pytest.mark.parametrize("line", ["[1]", "3", '{"stage": "sft", "step": 1}'])
def test_a_line_that_is_no_row_of_metrics_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"stage": "sft", "phase": "train", "step": 1}}\n{line}\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: line 2 is no row of metrics"):
        MetricsLog(path)


def test_times_are_told_apart():
    keys = ["seconds", "episode_seconds", "tokens_per_second", "success", "seconds_of_what"]
    assert [key for key in keys if is_time(key)] == keys[:3]


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(CheckpointError, match=r"cannot write .*Move away what stands there, and"):
        write_text(tmp_path / "run" / "config.yaml", "")
