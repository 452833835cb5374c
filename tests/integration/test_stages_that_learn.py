"""Stages that learn from the episodes of earlier ones, whole, resumed, killed and forked."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError
from agentgym_core.files import read_json_lines
from agentgym_core.fork import fork
from agentgym_core.train import train

from .facts import facts

SMALL = Path(__file__).with_name("small_textcraft.yaml")
CONFIG = f"""
include: {SMALL}
name: small
seed: 3
model: {{scratch: {{num_layers: 2}}}}
limits: {{max_tokens: 12}}
backend: {{use: torch, learning_rate: 5.0e-3}}
rounds: {{use: fixed, rounds: 6}}
training: {{num_steps: 4, tasks_per_step: 3, group_size: 4, save_every: 1}}
stages:
  - name: clone
    algorithm: {{use: sft, num_demonstrations: 40, batch_size: 8, demonstrator: {{mistakes: 0.3}}}}
    training: {{num_steps: 60, save_every: 0}}
  - {{name: explore, algorithm: explore}}
  - name: evolve
    algorithm:
      use: evol
      explored: [explore]
      demonstrations: [clone]
      original_weight: 0.5
      batch_size: 8
    training: {{num_steps: 30, save_every: 10}}
  - name: prefer
    algorithm: {{use: dpo, pairing: all}}
    backend: {{learning_rate: 3.0e-4}}
  - name: prefer-more
    algorithm: {{use: dpo, explored: [explore, prefer], batch_size: 2}}
    backend: {{learning_rate: 3.0e-4}}
"""
STAGES = ["clone", "explore", "evolve", "prefer", "prefer-more"]


def config_in(folder, *overrides):
    path = folder / "small.yaml"
    path.write_text(CONFIG)
    return load_config(path, [f"output={folder / 'runs'}", *overrides], Catalog.installed())


def run(folder, *overrides):
    return asyncio.run(train(config_in(folder, *overrides), lambda row: None))


def steps_of(folder, stage):
    return [row for row in read_json_lines(folder / "metrics.jsonl") if row["stage"] == stage]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    return run(tmp_path_factory.mktemp("whole"))


def test_every_stage_does_what_it_is_for(whole):
    explored = steps_of(whole, "explore")
    assert [row["episodes"] for row in explored] == [12] * 4
    assert all("loss" not in row and "grad_norm" not in row for row in explored)
    clone, explore = (
        (whole / "policies" / name / "model.safetensors").read_bytes()
        for name in ("clone", "explore")
    )
    assert clone == explore
    losses = [row["loss"] for row in steps_of(whole, "evolve")]
    assert losses[-1] < 0.5 * losses[0]
    for stage in ("prefer", "prefer-more"):
        first = next(row for row in steps_of(whole, stage) if row["pairs"])
        assert first["loss"] == pytest.approx(0.6931, abs=1e-4)
        assert first["update_skipped"] == 0


def cut(folder, stage, step):
    """What a kill leaves: nothing after a checkpoint but rows, files and half-written ones."""
    for later in STAGES[STAGES.index(stage) :]:
        shutil.rmtree(folder / "policies" / later, ignore_errors=True)
        for path in (folder / "checkpoints" / later).iterdir():
            if later != stage or int(path.name[5:]) > step:
                shutil.rmtree(path)
    (folder / "rollouts" / "explore" / ".step-000002.jsonl.half").write_text("{")


@pytest.mark.parametrize(
    "at", [("explore", 2), ("evolve", 20), ("prefer", 1), ("prefer-more", 3)], ids=lambda at: at[0]
)
def test_a_run_goes_on_as_if_nothing_had_happened(whole, tmp_path, at):
    shutil.copytree(whole, tmp_path / "runs" / "small")
    cut(tmp_path / "runs" / "small", *at)
    found, expected = facts(run(tmp_path)), facts(whole)
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name


def start(folder):
    (folder / "small.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "agentgym_core.cli", "train", str(folder / "small.yaml")]
    return subprocess.Popen(
        [*command, f"output={folder / 'runs'}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ,
    )  # fmt: skip


def kill_after(folder, stage, step):
    """Start or resume the run, and kill it at once when it has taken that step."""
    process = start(folder)
    log = folder / "runs" / "small" / "metrics.jsonl"
    sign = f'"stage": "{stage}", "phase": "train", "step": {step},'
    while process.poll() is None and not (log.exists() and sign in log.read_text()):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "runs" / "small" / "policies" / STAGES[-1]).exists(), "it came too late"


def test_a_run_that_is_killed_in_every_stage_ends_as_one_that_is_not(whole, tmp_path):
    for stage, step in (("explore", 2), ("evolve", 15), ("prefer", 1), ("prefer-more", 2)):
        kill_after(tmp_path, stage, step)
    last = start(tmp_path)
    said, _ = last.communicate(timeout=120)
    assert last.returncode == 0, said
    folder = tmp_path / "runs" / "small"
    found, expected = facts(folder), facts(whole)
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name


def test_a_fork_takes_the_episodes_along_that_it_learns_from(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "runs" / "small")
    cut(tmp_path / "runs" / "small", "evolve", 0)
    changed = config_in(tmp_path, "stages.2.algorithm.weighting=one")
    folder = asyncio.run(train(fork(changed, "other"), lambda row: None))
    assert steps_of(folder, "evolve")[-1]["step"] == 30
    assert facts(folder)["rollouts/explore/step-000001.jsonl"]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "stages.2.algorithm.explored=[explor]",
            r"stages\.2\.algorithm: learns from stage 'explor', and no stage before it is called "
            r"so: clone, explore\. Did you mean explore\?",
        ),
        ("stages.2.algorithm.demonstrations=[prefer]", r"learns from stage 'prefer', and no stage"),
        (
            "stages.2.algorithm.explored=[explore, explore]",
            r"stages\.2\.algorithm: explored names stage 'explore' twice",
        ),
        ("stages.3.algorithm.explored=[prefer]", r"stages\.3\.algorithm: learns from stage"),
        ("stages.2.algorithm.explored=[]", "explored"),
        ("stages.3.algorithm.beta=0", r"stages\.3\.algorithm: 'beta' must be > 0"),
    ],
)
def test_a_stage_that_is_not_there_is_refused_before_anything_runs(tmp_path, override, says):
    with pytest.raises(ConfigError, match=says):
        config_in(tmp_path, override)


def test_a_stage_that_played_nothing_is_one_clean_error(tmp_path):
    with pytest.raises(ConfigError, match="algorithm: stage 'clone' has played no episodes"):
        run(tmp_path, "stages.2.algorithm.explored=[clone]", "stages.0.training.num_steps=1",
            "stages.1.training.num_steps=1")  # fmt: skip
