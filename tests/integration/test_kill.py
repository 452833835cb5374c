"""A run that is killed again and again ends as the one that was not.

`.ci/kill_runs.py` kills one in every step.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.train import train

from .facts import facts

CONFIG = """
name: killed
seed: 5
model:
  scratch:
    {hidden_size: 32, num_layers: 1, num_heads: 2, num_key_value_heads: 1, intermediate_size: 64}
environments:
  - &world
    use: textcraft
    weight: 2
    prompt: short
    num_goals: 4
    held_out: instances
    train_instances: 6
    test_instances: 2
    plan_lengths: [2, 3]
    tags: false
    alternatives: false
    num_distractors: 1
  - {<<: *world, weight: 1, goal_seed: 1}
agent: {use: act}
algorithm: {use: grpo, num_minibatches: 2}
tasks: {use: curriculum}
reward: [environment, {use: format-penalty, penalty: 0.1}]
rounds: {use: scaling-inter, rounds: [2, 4, 6], steps_per_stage: 3}
engine: {use: local, max_batch_size: 16}
backend: {use: torch, learning_rate: 1.0e-3}
limits: {max_prompt_tokens: 200, max_response_tokens: 200, max_tokens: 8}
training: {num_steps: 12, tasks_per_step: 3, group_size: 2, save_every: 2, keep_checkpoints: 2}
evaluation: {every: 3, num_tasks: 2, max_rounds: 4}
"""


def run_whole(folder: Path, name: str = "whole") -> Path:
    """Train in this process, without a kill."""
    path = folder / "killed.yaml"
    path.write_text(CONFIG)
    config = load_config(path, [f"output={folder / 'runs'}", f"name={name}"], Catalog.installed())
    return asyncio.run(train(config, lambda row: None))


def kill_in(step: int, folder: Path, delay: float) -> str:
    """Start or resume the run in a process of its own, and kill it in a step.

    A negative delay kills it as soon as it begins to write a checkpoint at the step or after it.
    """
    run = folder / "runs" / "killed"
    process = start(folder)
    while process.poll() is None:
        done = run.joinpath("metrics.jsonl")
        rows = done.read_bytes().count(b'"phase": "train"') if done.exists() else 0
        if rows >= step - 1 and (delay >= 0 or [*run.glob("checkpoints/grpo/.step-*")]):
            time.sleep(max(0.0, delay))
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    return process.communicate()[0]


def start(folder: Path) -> "subprocess.Popen[str]":
    """`agentgym train`, from its start or from wherever it stands."""
    path = folder / "killed.yaml"
    path.write_text(CONFIG)
    command = [
        sys.executable, "-m", "agentgym_core.cli", "train", str(path), f"output={folder / 'runs'}",
    ]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    )


def assert_equal(found: dict[str, list], expected: dict[str, list]) -> None:
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_whole(tmp_path_factory.mktemp("whole"))


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(whole, tmp_path):
    draws = random.Random(1)
    for step in (3, 6):
        kill_in(step, tmp_path, draws.uniform(0, 0.2))
    kill_in(9, tmp_path, -1)
    folder = tmp_path / "runs" / "killed"
    assert not (folder / "policies").exists(), "the kills came too late to mean anything"
    last = start(tmp_path)
    said, _ = last.communicate(timeout=120)
    assert last.returncode == 0, said
    assert_equal(facts(folder), facts(whole))
    assert not [*folder.glob("checkpoints/*/.*"), *folder.glob("rollouts/*/.*")]


def test_a_kill_while_checkpoints_are_removed_leaves_none_behind(tmp_path):
    folder = run_whole(tmp_path)
    stage = folder / "checkpoints" / "grpo"
    kept = sorted(path.name for path in stage.iterdir())
    shutil.copytree(stage / "step-000010", stage / "step-000004")
    shutil.copytree(stage / "step-000010", stage / ".step-000002.old")
    shutil.rmtree(folder / "policies" / "grpo")
    run_whole(tmp_path)
    assert sorted(path.name for path in stage.iterdir()) == kept
    assert (folder / "policies" / "grpo").exists()


@pytest.fixture(scope="module")
def every_step(tmp_path_factory):
    """The same run with all its checkpoints."""
    folder = tmp_path_factory.mktemp("every")
    path = folder / "killed.yaml"
    path.write_text(CONFIG)
    options = ["training.save_every=1", "training.keep_checkpoints=null", "name=every"]
    config = load_config(path, [f"output={folder / 'runs'}", *options], Catalog.installed())
    return config, asyncio.run(train(config, lambda row: None))


@pytest.mark.parametrize("step", range(1, 12))
def test_a_run_goes_on_from_every_step(whole, every_step, step):
    config, folder = every_step
    shutil.rmtree(folder / "policies", ignore_errors=True)
    for path in (folder / "checkpoints" / "grpo").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    asyncio.run(train(config, lambda row: None, "always"))
    assert_equal(facts(folder), facts(whole))
