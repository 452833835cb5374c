"""A run with a reward, a task sampler that has state, and a tracker; stopped and gone on with."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agentgym_core.catalog import Catalog
from agentgym_core.cli import main
from agentgym_core.config import load_config
from agentgym_core.files import read_json_lines
from agentgym_core.metrics import is_time
from agentgym_core.tracking import scalars
from agentgym_core.train import train

SMALL = Path(__file__).with_name("small_textcraft.yaml")
CONFIG = (
    f"include: {SMALL}"
    + """
name: small
seed: 3
trackers: [tensorboard]
algorithm: grpo
rounds: {rounds: 3}
backend: {use: torch, learning_rate: 1.0e-3}
tasks: {use: curriculum, unseen: 0.3}
reward: [success, {use: format-penalty, penalty: 0.5}, {use: round-cost, weight: 0.1, cost: 1}]
training: {num_steps: 4, tasks_per_step: 3, group_size: 2, save_every: 1}
evaluation: {max_rounds: 2, num_tasks: 3, at_start: false}
"""
)


def run(folder, *overrides):
    (folder / "small.yaml").write_text(CONFIG)
    config = load_config(
        folder / "small.yaml", [f"output={folder / 'runs'}", *overrides], Catalog.installed()
    )
    return asyncio.run(train(config, lambda row: None))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


def rows(folder):
    return read_json_lines(folder / "metrics.jsonl")


def without_times(found):
    return [{key: value for key, value in row.items() if not is_time(key)} for row in found]


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {
        name: [(point.step, point.value) for point in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


def test_metrics_and_records_show_the_reward_and_its_parts(whole):
    for row in rows(whole):
        if row["phase"] == "train":
            expected = row["success"] + row["reward/format_penalty"] - 0.1 * row["rounds"]
            assert row["reward"] == pytest.approx(expected)
            assert row["reward/round_cost"] == -row["rounds"]
            assert row["reward/format_penalty"] < 0, "an untrained model makes mistakes"
    for file in whole.glob("rollouts/grpo/*.jsonl"):  # training and evaluation
        for row in read_json_lines(file):
            bad = sum(turn["format_error"] for turn in row["turns"])
            assert row["reward"] == pytest.approx(row["success"] - 0.5 * bad - 0.1 * row["rounds"])


def test_tensorboard_shows_what_metrics_hold(whole):
    expected = {}
    for row in rows(whole):
        for name, value in scalars(row).items():
            expected.setdefault(name, []).append((row["step"], pytest.approx(value)))
    assert events(whole) == expected


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_run_goes_on_from_every_step_with_each_point_once(whole, tmp_path, step):
    folder = tmp_path / "runs" / "small"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "policies")
    for later in range(step + 1, 5):
        shutil.rmtree(folder / "checkpoints" / "grpo" / f"step-{later:06d}")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "output": str(tmp_path)}))
    assert run(tmp_path) == folder
    assert without_times(rows(folder)) == without_times(rows(whole))
    assert {name: [at for at, _ in points] for name, points in events(folder).items()} == {
        name: [at for at, _ in points] for name, points in events(whole).items()
    }


def test_tasks_come_from_a_file(whole, tmp_path):
    played = read_json_lines(whole / "rollouts" / "grpo" / "step-000001.jsonl")
    chosen = sorted({row["item_id"] for row in played})[:2]
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps([{"item_id": id_} for id_ in chosen]))
    overrides = ["trackers=[]", "evaluation=null", "training.num_steps=1"]
    folder = run(tmp_path, f"tasks={{use: from-file, path: {file}, shuffle: false}}", *overrides)
    rows = read_json_lines(folder / "rollouts" / "grpo" / "step-000001.jsonl")
    assert [row["item_id"] for row in rows[::2]] == [*chosen, chosen[0]]
    assert not (folder / "tensorboard").exists()


def test_a_tracker_that_is_not_installed_is_one_clean_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    (tmp_path / "small.yaml").write_text(CONFIG)
    result = CliRunner().invoke(main, ["train", str(tmp_path / "small.yaml"), f"output={tmp_path}"])
    assert result.exit_code == 2
    assert 'pip install "agentgym-core[tensorboard]"' in result.output
