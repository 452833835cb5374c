"""What stops a run, what it says then, and how it goes on: forks, full disks, hangs, signals."""

import asyncio
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentgym_core import checkpoint, loop
from agentgym_core.catalog import Catalog
from agentgym_core.cli import main
from agentgym_core.config import load_config
from agentgym_core.errors import CheckpointError, ConfigError, NumericalError, Stalled
from agentgym_core.files import read_json_lines
from agentgym_core.fork import fork
from agentgym_core.learning_curve import plot_learning
from agentgym_core.train import train as train_run

SMALL = Path(__file__).with_name("small_textcraft.yaml")
CONFIG = (
    f"include: {SMALL}"
    + """
name: small
algorithm: {use: grpo, kl_coef: 0.01}
reward: [environment, {use: format-penalty, penalty: 0.1}]
rounds: {use: fixed, rounds: 2}
backend: {use: torch, learning_rate: 1.0e-3}
training: {num_steps: 4, tasks_per_step: 2, group_size: 2, save_every: 1}
"""
)


def load(folder: Path, *overrides: str, more: str = ""):
    path = folder / "small.yaml"
    path.write_text(CONFIG + more)
    return load_config(path, [f"output={folder / 'runs'}", *overrides], Catalog.installed())


def train(config, resume="auto"):
    return asyncio.run(train_run(config, lambda row: None, resume))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    train(load(folder))
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished / "runs", tmp_path / "runs")
    return tmp_path


def rows_of(folder: Path) -> list[dict]:
    return read_json_lines(folder / "metrics.jsonl")


def steps(folder: Path) -> list[int]:
    return [row["step"] for row in read_json_lines(folder / "metrics.jsonl")]


def test_a_fork_goes_on_with_another_configuration(copied):
    new = fork(load(copied, "training.num_steps=6", "algorithm.kl_coef=0.02"), "longer")
    assert new.folder == copied / "runs" / "longer"
    assert steps(new.folder) == [1, 2, 3, 4]
    assert not (new.folder / "policies").exists()
    whence = json.loads((new.folder / "forked_from.json").read_text())
    assert whence == {"run": str(copied / "runs" / "small"), "steps": {"grpo": 4}}
    assert train(new, "always") == new.folder
    assert steps(new.folder) == [1, 2, 3, 4, 5, 6]
    old = read_json_lines(copied / "runs" / "small" / "metrics.jsonl")
    assert read_json_lines(new.folder / "metrics.jsonl")[:4] == old
    with pytest.raises(ConfigError, match=r"longer exists already"):
        fork(load(copied), "longer")


def test_a_fork_may_be_shorter_and_change_its_schedules(copied, caplog):
    new = fork(load(copied, "training.num_steps=2", "tasks.use=curriculum"), "shorter")
    assert steps(new.folder) == [1, 2]
    assert checkpoint.latest(new.folder / "checkpoints" / "grpo").step == 2
    assert "grpo.tasks is another component now: it begins anew" in caplog.text
    train(new)
    assert (new.folder / "policies" / "grpo").exists()


def test_a_fork_takes_over_the_state_of_an_algorithm_that_begins_alike(copied, caplog):
    adaptive = ["algorithm.kl_estimator=k1", "algorithm.kl_target=0.5"]
    fresh = fork(load(copied, "training.num_steps=5", *adaptive), "fresh")  # there was no state
    assert "grpo.algorithm begins with another state now: it begins anew" in caplog.text
    train(fresh)
    found = [row["kl_coef"] for row in rows_of(fresh.folder) if "kl_coef" in row]
    assert found == [0.01]
    caplog.clear()
    same = [*adaptive, "name=fresh", "training.num_steps=6"]
    goes_on = fork(load(copied, *same, "algorithm.clip_high=0.3"), "goes-on")
    assert not caplog.records
    train(goes_on)
    first, second = [row["kl_coef"] for row in rows_of(goes_on.folder) if "kl_coef" in row]
    assert (first, second) == (0.01, pytest.approx(0.0098))
    anew = fork(load(copied, *same, "algorithm.kl_coef=0.5"), "anew")
    train(anew)
    assert [row["kl_coef"] for row in rows_of(anew.folder) if "kl_coef" in row] == [0.01, 0.5]


ONE_STAGE = "stages: [{name: grpo}]\n"
"""The stage's name, which is otherwise that of its algorithm."""


def test_a_fork_may_go_on_with_an_algorithm_that_does_not_play(copied):
    options = ["algorithm={use: sft, num_demonstrations: 4}", "training.num_steps=5"]
    new = fork(load(copied, *options, more=ONE_STAGE), "imitates")
    train(new)
    assert steps(new.folder) == [1, 2, 3, 4, 5]
    assert plot_learning(rows_of(new.folder), copied / "learning.png", "")


def test_a_fork_whose_critic_was_not_saved_is_refused_in_words(copied):
    options = ["algorithm={use: ppo}", "training.num_steps=5"]
    new = fork(load(copied, *options, more=ONE_STAGE), "valued")
    with pytest.raises(ConfigError, match=r"backend, from .*: critic.safetensors is not there"):
        train(new)


def test_a_fork_of_a_finished_stage_is_finished(copied):
    new = fork(load(copied), "same")
    assert (new.folder / "policies" / "grpo").exists()


TWO_STAGES = """
stages:
  - {name: first, training: {num_steps: 2}}
  - {name: second, training: {num_steps: 2}}
"""


def test_a_fork_of_several_stages_goes_on_within_the_one_that_is_under_way(tmp_path):
    """The finished stage's policy and the other's last checkpoint come along, as they are."""
    train(load(tmp_path, more=TWO_STAGES))
    new = fork(load(tmp_path, "stages.1.training.num_steps=3", more=TWO_STAGES), "longer")
    whence = json.loads((new.folder / "forked_from.json").read_text())
    assert whence["steps"] == {"first": 2, "second": 2}
    assert [path.name for path in (new.folder / "policies").iterdir()] == ["first"]
    train(new)
    rows = read_json_lines(new.folder / "metrics.jsonl")
    taken = read_json_lines(tmp_path / "runs" / "small" / "metrics.jsonl")
    assert rows[:4] == taken
    assert [(row["stage"], row["step"]) for row in rows[4:]] == [("second", 3)]


def test_a_fork_that_changes_a_finished_stage_begins_those_after_it_anew(tmp_path):
    train(load(tmp_path, more=TWO_STAGES))
    new = fork(load(tmp_path, "stages.0.training.num_steps=3", more=TWO_STAGES), "longer")
    whence = json.loads((new.folder / "forked_from.json").read_text())
    assert whence["steps"] == {"first": 2}
    assert not (new.folder / "policies").exists()
    train(new)
    rows = read_json_lines(new.folder / "metrics.jsonl")
    taken = [(row["stage"], row["step"]) for row in rows]
    assert taken == [("first", 1), ("first", 2), ("first", 3), ("second", 1), ("second", 2)]


def test_what_a_fork_cannot_take_over_is_refused(copied):
    with pytest.raises(ConfigError, match=r"the model differs"):
        fork(load(copied, "model.scratch.hidden_size=64"), "other")
    with pytest.raises(ConfigError, match=r"there is no run in .*nowhere to fork"):
        fork(load(copied, "name=nowhere"), "other")
    shutil.rmtree(copied / "runs" / "small" / "checkpoints" / "grpo" / "step-000001")
    with pytest.raises(ConfigError, match=r"no checkpoint within training.num_steps=1"):
        fork(load(copied, "training.num_steps=1"), "other")
    assert sorted(path.name for path in (copied / "runs").iterdir()) == ["small"]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_run_whose_metrics_are_gone_does_not_go_on(copied, kept):
    folder = copied / "runs" / "small"
    shutil.rmtree(folder / "policies")
    log = folder / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:kept]))
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl has no row for step 4 of grpo"):
        train(load(copied))
    assert len(steps(folder)) == kept


def test_a_fork_by_command(copied):
    path = copied / "small.yaml"
    path.write_text(CONFIG)
    command = ["train", str(path), f"output={copied / 'runs'}", "training.num_steps=5"]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "training.num_steps is 4 there and 5 here" in refused.output
    assert "--fork NAME" in refused.output
    result = CliRunner().invoke(main, [*command, "--fork", "five"])
    assert result.exit_code == 0, result.output
    assert steps(copied / "runs" / "five") == [1, 2, 3, 4, 5]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    save = checkpoint.save

    def full(folder, step, *rest):
        if step == 3:
            raise CheckpointError("cannot write there: No space left on device")
        save(folder, step, *rest)

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(CheckpointError, match="No space left"):
        train(load(tmp_path))
    monkeypatch.setattr(checkpoint, "save", save)
    assert steps(train(load(tmp_path))) == [1, 2, 3, 4]


def test_a_loss_that_is_not_finite_stops_the_run_which_can_go_on(tmp_path, monkeypatch):
    from agentgym_grpo.grpo import GRPO

    loss = GRPO.loss
    monkeypatch.setattr(GRPO, "loss", lambda self, tokens: (loss(self, tokens)[0] * math.nan, {}))
    with pytest.raises(NumericalError, match=r"step \d of grpo: the loss is nan.*--fork"):
        train(load(tmp_path))
    monkeypatch.setattr(GRPO, "loss", loss)
    assert steps(train(load(tmp_path))) == [1, 2, 3, 4]


def test_a_hang_ends_and_says_what_was_waited_for(tmp_path, monkeypatch):
    from agentgym_textcraft.session import TextCraftSession

    async def hang(self, action):
        await asyncio.Event().wait()

    step = TextCraftSession.step
    monkeypatch.setattr(TextCraftSession, "step", hang)
    config = load(tmp_path)
    monkeypatch.setattr(loop, "watched", lambda p, _, stop: watched(p, 0.3, stop))
    with pytest.raises(
        Stalled, match=r"wait.? for TextCraft.step \(tasks? textcraft.*the same com"
    ):
        train(config)
    monkeypatch.undo()
    assert TextCraftSession.step is step
    assert steps(train(load(tmp_path))) == [1, 2, 3, 4]


watched = loop.watched


def started(folder: Path, num_steps: int, hang_up: signal.Handlers):
    """A run in a process of its own that has done a step, and its metrics.

    Args:
        hang_up: what it inherits for SIGHUP, whatever these tests were started under.
    """
    load(folder)
    inherited = signal.signal(signal.SIGHUP, hang_up)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "agentgym_core.cli", "train", str(folder / "small.yaml"),
            f"output={folder / 'runs'}", f"training.num_steps={num_steps}",
            "training.save_every=0",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    signal.signal(signal.SIGHUP, inherited)
    rows = folder / "runs" / "small" / "metrics.jsonl"
    while not rows.exists() or not rows.stat().st_size:
        assert process.poll() is None
        time.sleep(0.02)
    return process, rows


def test_a_hang_up_that_is_ignored_stays_so(tmp_path):
    """As under nohup."""
    process, rows = started(tmp_path, 4, signal.SIG_IGN)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert steps(rows.parent) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_saves_and_has_its_exit_code(tmp_path, number, code):
    process, rows = started(tmp_path, 1000, signal.SIG_DFL)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "The same command goes on from" in said
    last = checkpoint.latest(tmp_path / "runs" / "small" / "checkpoints" / "grpo")
    assert last.step == len(steps(rows.parent))
