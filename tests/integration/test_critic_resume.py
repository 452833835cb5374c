"""A run with a critic that is killed ends as one that is not: values, targets, both optimizers."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.files import read_json_lines
from agentgym_core.train import train

from .facts import facts

SMALL = Path(__file__).with_name("small_textcraft.yaml")
PPO = {"use": "ppo", "num_minibatches": 2, "critic_warmup": 2, "kl_coef": 0.01,
       "kl_estimator": "k1", "kl_target": 0.5, "reference_every": 3}  # fmt: skip
NUM_STEPS = 6


def config_in(folder, shared):
    critic = {"shared": shared, "learning_rate": 3.0e-3}
    backend = {"use": "torch", "learning_rate": 1.0e-3, "schedule": "cosine", "critic": critic}
    document = {
        "include": str(SMALL),
        "name": "small",
        "output": str(folder / "runs"),
        "seed": 3,
        "algorithm": PPO,
        "advantage": {"use": "gae", "gamma": 0.98, "lam": 0.9, "bootstrap_truncated": True},
        "rounds": {"rounds": 3},
        "backend": backend,
        "training": {
            "num_steps": NUM_STEPS,
            "tasks_per_step": 4,
            "group_size": 2,
            "save_every": 1,
        },
        "reward": ["environment", {"use": "format-penalty", "penalty": 0.5}],
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def run(folder, shared):
    config = load_config(config_in(folder, shared), [], Catalog.installed())
    return asyncio.run(train(config, lambda row: None))


def assert_equal(folder, whole):
    found, expected = facts(folder), facts(whole)
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name


@pytest.fixture(scope="module", params=[False, True], ids=["own", "shared"])
def shared(request):
    """Whether the critic stands on the policy's trunk."""
    return request.param


@pytest.fixture(scope="module")
def whole(shared, tmp_path_factory):
    """An uninterrupted run, in which the critic comes to know something."""
    folder = run(tmp_path_factory.mktemp("whole"), shared)
    steps = read_json_lines(folder / "metrics.jsonl")
    assert len(steps) == NUM_STEPS
    assert steps[-1]["value_loss"] < steps[0]["value_loss"]
    assert all(row["critic_grad_norm"] > 0 for row in steps)
    return folder


def test_a_checkpoint_holds_the_critic_and_its_optimizer(whole):
    """After three steps of two minibatches, in two of which the critic learned alone."""
    checkpoint = whole / "checkpoints" / "ppo" / "step-000003"
    assert (checkpoint / "critic.safetensors").exists()
    state = torch.load(checkpoint / "optimizer.pt", weights_only=True)
    assert {each["step"].item() for each in state["critic_optimizer"]["state"].values()} == {6}
    assert {each["step"].item() for each in state["optimizer"]["state"].values()} == {2}


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_happened(whole, shared, step, tmp_path):
    """In the warm-up, at its end, at a refresh of the reference, and late."""
    folder = tmp_path / "runs" / "small"
    shutil.copytree(whole, folder)
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace(str(whole.parent), str(folder.parent)))
    shutil.rmtree(folder / "policies")
    for path in (folder / "checkpoints" / "ppo").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    assert_equal(run(tmp_path, shared), whole)


def test_a_run_that_is_killed_goes_on(whole, shared, tmp_path):
    path = config_in(tmp_path, shared)
    command = [sys.executable, "-m", "agentgym_core.cli", "train", str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    )
    folder = tmp_path / "runs" / "small"
    while process.poll() is None and not (folder / "checkpoints/ppo/step-000003").exists():
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    said, _ = process.communicate()
    assert not (folder / "policies").exists(), said
    assert_equal(run(tmp_path, shared), whole)
