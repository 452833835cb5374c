"""Two processes that share a run, under torchrun as users start them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.files import read_json_lines
from agentgym_core.metrics import is_time
from agentgym_core.train import train

SMALL = Path(__file__).with_name("small_textcraft.yaml")
WARM = f"""
include: {SMALL}
name: warm
seed: 3
algorithm: {{use: sft, num_demonstrations: 20, batch_size: 8, demonstrator: {{mistakes: 0.3}}}}
rounds: {{use: fixed, rounds: 8}}
backend: {{use: torch, learning_rate: 5.0e-3}}
training: {{num_steps: 25}}
"""
CONFIG = """
name: small
seed: 3
model: {{path: {policy}, scratch: null}}
# Rows of a batch are computed alike whatever stands beside them: each rank has other batches.
engine: {{deterministic: true}}
evaluation: {{temperatures: [0.0], max_rounds: 4}}
stages:
  - algorithm: {{use: sft, num_demonstrations: 20, batch_size: 5, demonstrator: {{mistakes: 0.3}}}}
    rounds: {{use: fixed, rounds: 8}}
    backend: {{use: torch, learning_rate: 1.0e-3, tokens_per_micro_batch: 1000}}
    training: {{num_steps: 5}}
  - model: base
    algorithm: {{use: grpo, num_minibatches: 2, kl_coef: 0.01}}
    rounds: {{use: scaling-inter, rounds: [4, 6], steps_per_stage: 2}}
    backend: {{use: torch, learning_rate: 1.0e-4, tokens_per_micro_batch: 500}}
    training: {{num_steps: 5, tasks_per_step: 5, group_size: 4, save_every: 2}}
    # Of a policy this young it is the format that differs between attempts.
    reward: &format [environment, {{use: format-penalty}}]
    evaluation: {{at_start: false}}
  - algorithm: explore
    rounds: &rounds {{use: fixed, rounds: 4}}
    backend: &backend {{use: torch, learning_rate: 1.0e-4, tokens_per_micro_batch: 500}}
    training: &size {{num_steps: 2, tasks_per_step: 3, group_size: 4}}
    reward: *format
    evaluation: null
  - algorithm:
      use: evol
      explored: [explore]
      demonstrations: [sft]
      weighting: one
      original_weight: 0.5
      batch_size: 5
    rounds: *rounds
    backend: *backend
    training: {{num_steps: 3}}
    evaluation: null
  - {{name: prefer, algorithm: {{use: dpo, pairing: all, label_smoothing: 0.1}}, rounds: *rounds,
     backend: *backend, training: *size, reward: *format, evaluation: null}}
  - {{name: prefer-more, algorithm: {{use: dpo, explored: [explore, prefer], batch_size: 5}},
     rounds: *rounds, backend: *backend, training: {{num_steps: 3}}, evaluation: null}}
"""
PLAIN = [sys.executable, "-m", "agentgym_core.cli"]
TWO = [
    *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"),
    *("-m", "agentgym_core.cli"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def start(launcher, folder: Path, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*launcher, "train", str(folder / "small.yaml"), f"output={folder}", *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120.0) -> str:
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return output


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run that begins from a policy which solves a task now and then."""
    path = tmp_path_factory.mktemp("warm") / "warm.yaml"
    path.write_text(WARM)
    warm = load_config(path, [f"output={path.parent}"], Catalog.installed())
    policy = asyncio.run(train(warm, lambda row: None)) / "policies" / "sft"
    return f"include: {SMALL}{CONFIG.format(policy=policy)}"


@pytest.fixture
def folder(config, tmp_path):
    (tmp_path / "small.yaml").write_text(config)
    return tmp_path


@pytest.fixture(scope="module")
def runs(config, tmp_path_factory):
    """The same run by one process and by two: their run directories, and what each said."""
    folders, said = [], []
    for launcher in (PLAIN, TWO):
        folders.append(tmp_path_factory.mktemp("runs"))
        (folders[-1] / "small.yaml").write_text(config)
        process = start(launcher, folders[-1])
        said.append(finish(process))
        assert process.returncode == 0, said[-1]
    return [folder / "small" for folder in folders], said


def rows(folder: Path, pattern: str) -> list[dict]:
    files = sorted(folder.glob(pattern))
    assert files, f"no {pattern} in {folder}"
    return [row for file in files for row in read_json_lines(file)]


def test_two_ranks_equal_one(runs):
    """Losses to 1e-6, of every way to learn; and whatever else is measured."""
    one, two = (rows(folder, "metrics.jsonl") for folder in runs[0])
    learned = Counter(row["stage"] for row in one if row.get("update_skipped") == 0)
    assert learned == {"grpo": 5, "prefer": 2, "prefer-more": 3}
    for ours, theirs in zip(two, one, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            if isinstance(value, float) and not is_time(key):
                close = pytest.approx(value, rel=1e-5 * (key != "loss"), abs=1e-6)
                assert ours[key] == close, (theirs["stage"], theirs["step"], key)


@pytest.mark.parametrize(
    ("stage", "num"), [("grpo", 5 * 5 * 4), ("explore", 2 * 3 * 4), ("prefer", 2 * 3 * 4)]
)
def test_two_ranks_play_the_same_episodes_with_the_same_credit(runs, stage, num):
    one, two = (rows(folder, f"rollouts/{stage}/step-*.jsonl") for folder in runs[0])
    assert len(one) == len(two) == num
    credits = 0
    for ours, theirs in zip(two, one, strict=True):
        for our, their in zip(ours["turns"], theirs["turns"], strict=True):
            assert our["token_ids"] == their["token_ids"]
            assert our["advantages"] == pytest.approx(their["advantages"], abs=1e-6)
            credits += any(their["advantages"])
    assert credits > 20 or stage == "explore", "nothing was learned: no test"


def test_the_first_rank_alone_speaks(runs):
    _, (alone, together) = runs
    assert together.count("Done in") == alone.count("Done in") == 1


def test_a_lost_rank_ends_the_other_with_the_reason(folder):
    """And what was saved stands: the same command goes on from it, on one rank or on two."""
    process = start(TWO, folder, "stages.1.training.num_steps=400")
    checkpoints = folder / "small" / "checkpoints" / "grpo"
    wait_for(lambda: list(checkpoints.glob("step-*")), process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    killed = time.monotonic()
    output = finish(process, 60.0)
    assert time.monotonic() - killed < 60
    assert process.returncode != 0
    assert "error: rank 0: rank 1 is gone" in output, output
    assert "Traceback" not in output.split("torch/distributed")[0], output


def test_a_signal_stops_all_ranks_at_the_same_step_and_saves_once(folder, runs):
    process = start(TWO, folder, "stages.1.training.save_every=0")
    wait_for(lambda: list((folder / "small" / "rollouts" / "grpo").glob("step-*")), process)
    os.kill(ranks_of(process)[1], signal.SIGTERM)  # not even the first is told
    output = finish(process)
    assert "The same command goes on from" in output, output
    process = start(PLAIN, folder, "stages.1.training.save_every=0")
    assert "Done in" in finish(process)
    played = "rollouts/grpo/step-*.jsonl"
    for ours, theirs in zip(rows(folder / "small", played), rows(runs[0][0], played), strict=True):
        assert [t["token_ids"] for t in ours["turns"]] == [t["token_ids"] for t in theirs["turns"]]


def test_other_configurations_are_refused_on_every_rank(folder):
    """Each rank reads the file for itself: on another machine it may be another one."""
    script = folder / "other.py"
    script.write_text(
        "import os, sys\n"
        "from agentgym_core.cli import main\n"
        "main([*sys.argv[1:], f\"seed={os.environ['RANK']}\"])\n"
    )
    process = start([*TWO[:-2], str(script)], folder)
    output = finish(process)
    words = "another configuration than rank 0: stages.0.seed is 1 there and 0 here"
    assert words in output, output
    assert not (folder / "small").exists()


def wait_for(condition, process, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, finish(process)
        time.sleep(0.05)


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    """The process of each rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    ranks: dict[int, int] = {}
    for child in map(int, children):
        for variable in Path(f"/proc/{child}/environ").read_text().split("\0"):
            if variable.startswith("RANK="):
                ranks[int(variable.removeprefix("RANK="))] = child
    return [ranks[rank] for rank in sorted(ranks)]
