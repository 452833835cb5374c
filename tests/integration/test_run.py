"""Whole runs in small: two stages on the real environment, engine and trainer."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentgym_core.catalog import Catalog
from agentgym_core.cli import main
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError, TooManyFailures
from agentgym_core.files import read_json_lines
from agentgym_core.train import train

from .facts import facts

SMALL = Path(__file__).with_name("small_textcraft.yaml")
CONFIG = (
    f"include: {SMALL}"
    + """
name: small
seed: 3
model: {scratch: {num_layers: 2}}
limits: {max_tokens: 12}
evaluation: {temperatures: [0.0, 1.0], max_rounds: 4}
stages:
  - algorithm: {use: sft, num_demonstrations: 40, batch_size: 8, demonstrator: {mistakes: 0.3}}
    rounds: {use: fixed, rounds: 8}
    backend: {use: torch, learning_rate: 5.0e-3}
    training: {num_steps: 40, save_every: 15}
    evaluation: {at_start: false}
  - algorithm: {use: grpo, num_minibatches: 2, kl_coef: 0.01}
    rounds: {use: scaling-inter, rounds: [2, 4], steps_per_stage: 2}
    backend: {use: torch, learning_rate: 1.0e-3}
    training: {num_steps: 4, tasks_per_step: 3, group_size: 4, save_every: 2}
    evaluation: {at_start: false, every: 2}
"""
)


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG)
    return path


def run(path, *overrides):
    config = load_config(path, [f"output={path.parent / 'runs'}", *overrides], Catalog.installed())
    return asyncio.run(train(config, lambda row: None))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    path = tmp_path_factory.mktemp("whole") / "small.yaml"
    path.write_text(CONFIG)
    return run(path)


def test_a_run_directory_holds_what_the_page_says(whole):
    rows = read_json_lines(whole / "metrics.jsonl")
    assert [
        (row["stage"], row["step"], row.get("sampling")) for row in rows if row["phase"] != "train"
    ] == [
        ("sft", 0, "demonstrator"),
        ("sft", 40, "greedy"),
        ("sft", 40, "t1"),
        ("grpo", 2, "greedy"),
        ("grpo", 2, "t1"),
        ("grpo", 4, "greedy"),
        ("grpo", 4, "t1"),
    ]
    steps = [row for row in rows if row["phase"] == "train" and row["stage"] == "grpo"]
    assert [(row["step"], row["horizon"]) for row in steps] == [(1, 2), (2, 2), (3, 4), (4, 4)]
    for row in steps:
        assert row["episodes"] == 12
        assert row["dropped"] == 0
        assert row["rounds"] <= row["horizon"]
        assert row["sampling_gap_max"] < 1e-5
    losses = [row["loss"] for row in rows if row["stage"] == "sft" and row["phase"] == "train"]
    assert losses[-1] < 0.5 * losses[0]
    names = {p.name for p in whole.iterdir()}
    assert names == {
        "config.yaml", "metrics.jsonl", "demonstrations", "rollouts", "checkpoints", "policies",
        "model", "versions.json", ".lock",
    }  # fmt: skip
    assert sorted(p.name for p in (whole / "checkpoints" / "sft").iterdir()) == [
        "step-000015",
        "step-000030",
        "step-000040",
    ]


def test_rows_of_episodes_rebuild_what_the_engine_saw(whole):
    rows = read_json_lines(whole / "rollouts" / "grpo" / "step-000003.jsonl")
    assert len(rows) == 12
    for row in rows:
        for turn in row["turns"]:
            assert len(turn["token_ids"]) == len(turn["logprobs"]) > 0
            assert turn["policy_version"] == 2
            assert len(turn["advantages"]) in (0, len(turn["token_ids"]))
        assert row["rounds"] <= row["max_rounds"] == 4
        assert row["reward"] == float(row["success"])
    assert {row["group"] for row in rows} == {0, 1, 2}


def test_the_page_of_metrics_names_each_and_no_other(whole):
    """What this run does not have must at least stand in the code, as a text of that name."""
    root = SMALL.parents[2]
    page = (root / "docs" / "metrics.md").read_text()
    cells = re.findall(r"^\| (`.+?`) \|", page, re.M)
    named = {name for cell in cells for name in re.findall(r"`(.+?)`", cell)}
    found = {key for row in read_json_lines(whole / "metrics.jsonl") for key in row}
    families = r"^(diagnosis|reward|dropped|retried|success_at_horizon)/.*"
    found = {re.sub(families, r"\1/<>", key) for key in found}
    named = {re.sub(r"<\w+>", "<>", name) for name in named}
    assert found - named == set()
    sources = [*(root / "agentgym_core").rglob("*.py"), *root.glob("plugins/*/src/**/*.py")]
    code = "".join(path.read_text() for path in sources)
    literals = set(re.findall(r'"([^"\n{]+)(?:\{\w+\})?"', code))
    assert {name for name in named - found if name.removesuffix("<>") not in literals} == set()


def test_two_runs_with_one_seed_are_equal(whole, config_file):
    assert facts(run(config_file)) == facts(whole)


def test_another_seed_is_another_run(whole, config_file):
    other = run(config_file, "seed=4", "stages.0.training.num_steps=2", "evaluation=null")
    assert (
        facts(other)["rollouts/grpo/step-000001.jsonl"]
        != facts(whole)["rollouts/grpo/step-000001.jsonl"]
    )


@pytest.mark.parametrize("at", [("sft", 15), ("sft", 40), ("grpo", 2)])
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(whole, tmp_path, at):
    """What a kill leaves: rows and files beyond the last checkpoint, and half-written folders."""
    stage, step = at
    runs = tmp_path / "runs"
    shutil.copytree(whole, runs / "small")
    folder = runs / "small"
    for name in ("sft", "grpo"):
        for path in (folder / "checkpoints" / name).iterdir():
            later = name == "grpo" and stage == "sft"
            if later or (name == stage and int(path.name[5:]) > step):
                shutil.rmtree(path)
    shutil.rmtree(folder / "policies" / "grpo")
    if stage == "sft":
        shutil.rmtree(folder / "policies" / "sft")
    (folder / "checkpoints" / stage / ".step-000099.half").mkdir()
    config = yaml_at(tmp_path)
    (folder / "config.yaml").write_text(
        (folder / "config.yaml").read_text().replace(str(whole.parent), str(runs))
    )
    assert run(config) == folder
    found, expected = facts(folder), facts(whole)
    assert list(found) == list(expected)
    for name in expected:
        assert found[name] == expected[name], name


def yaml_at(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(CONFIG)
    return path


def test_another_configuration_is_refused(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "runs" / "small")
    file = tmp_path / "runs" / "small" / "config.yaml"
    file.write_text(file.read_text().replace(str(whole.parent), str(tmp_path / "runs")))
    with pytest.raises(
        ConfigError, match=r"holds a run with another configuration: stages.0.seed is 3"
    ):
        run(yaml_at(tmp_path), "seed=4")


def test_a_run_that_failed_at_its_start_takes_a_mended_configuration(config_file):
    folder = config_file.parent / "runs" / "small"
    command = ["train", str(config_file), f"output={folder.parent}"]
    wrong = ["seed=9", "backend.schedule=cosine", "backend.warmup_steps=40"]
    failed = CliRunner().invoke(main, [*command, *wrong])
    assert "schedule 'cosine' needs more training steps" in failed.output
    policy = (folder / "model" / "model.safetensors").read_bytes()
    short = ["stages.0.training.num_steps=1", "stages.1.training.num_steps=1"]
    mended = CliRunner().invoke(main, [*command, *short])
    assert mended.exit_code == 0, mended.output
    assert (folder / "model" / "model.safetensors").read_bytes() != policy
    assert "seed: 9" not in (folder / "config.yaml").read_text()
    assert CliRunner().invoke(main, command).exit_code == 2


@pytest.mark.parametrize(
    "sign",
    ["rollouts/grpo/step-000001.jsonl", "checkpoints/sft/step-000015"],
    ids=["while playing", "while learning"],
)
def test_ctrl_c_stops_saves_and_the_same_command_goes_on(whole, tmp_path, sign):
    command = [
        sys.executable, "-m", "agentgym_core.cli", "train", str(yaml_at(tmp_path)),
        f"output={tmp_path / 'runs'}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    folder = tmp_path / "runs" / "small"
    deadline = time.monotonic() + 120
    while not (folder / sign).exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The same command goes on from" in said
    assert not (folder / "policies" / ("grpo" if "grpo" in sign else "sft")).exists()
    again = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert "Success on held-out tasks" in again.stdout
    assert facts(folder) == facts(whole)


def test_too_many_failures_stop_the_run_and_name_the_last(config_file, monkeypatch):
    from agentgym_textcraft.session import TextCraftSession

    async def fail(self, task, seed):
        raise ConnectionError("the furnace is out")

    monkeypatch.setattr(TextCraftSession, "reset", fail)
    with pytest.raises(
        TooManyFailures,
        match=r"12 of 12 episodes failed.*max_failed_fraction=0.1.*the furnace is out",
    ):
        run(config_file, "stages.0.algorithm.num_demonstrations=null",
            "stages.0.algorithm.demonstrator.mistakes=0.0",
            f"stages.0.algorithm.data={demonstrations(config_file.parent)}",
            "stages.0.training.num_steps=1", "evaluation=null")  # fmt: skip


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("stages.0.backend.schedule=linear", "warmup_steps"),
        ("model={scratch: null, path: /nowhere}", "/nowhere"),
        (
            "stages.0.algorithm={num_demonstrations: null, demonstrator: {mistakes: 0}, "
            "data: /nowhere.jsonl}",
            "algorithm: .*/nowhere.jsonl",
        ),
        ("stages.1.engine.top_p=0.5", "stages.1.engine: top_p is 0.5"),
    ],
)
def test_what_a_component_refuses_at_its_start_is_one_clean_line(config_file, override, says):
    runs = config_file.parent / "runs"
    quick = ["stages.0.training.num_steps=2", "stages.0.backend.warmup_steps=2", "evaluation=null"]
    result = CliRunner().invoke(
        main, ["train", str(config_file), f"output={runs}", *quick, override]
    )
    assert result.exit_code == 2
    assert re.match(f"error: .*{says}", result.output.splitlines()[-1])
    assert len(result.output.splitlines()) <= 4


def demonstrations(folder: Path) -> Path:
    path = folder / "demos.jsonl"
    messages = [{"role": "user", "content": "goal stick"}, {"role": "assistant", "content": "get"}]
    path.write_text(json.dumps({"messages": messages}) + "\n")
    return path


def test_a_finished_run_is_evaluated(whole, tmp_path):
    result = CliRunner().invoke(
        main, ["eval", str(whole), "--out", str(tmp_path), "evaluation.num_tasks=5"]
    )
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert list(found) == ["greedy", "t1"]
    assert found["greedy"]["overall"]["num_tasks"] == 5
    assert "of 5 tasks" in result.output
    rows = read_json_lines(tmp_path / "evaluation-greedy.jsonl")
    assert sum(row["success"] for row in rows) / 5 == found["greedy"]["overall"]["success"]


def test_an_evaluation_is_overwritten_only_if_asked(config_file, tmp_path):
    command = ["eval", str(config_file), "--expert", "--out", str(tmp_path)]
    command += ["evaluation.num_tasks=2"]
    (tmp_path / "evaluation.json").write_text("earlier")
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "evaluation.json exists: write elsewhere with --out FOLDER, or give --overwrite" in (
        refused.output
    )
    assert (tmp_path / "evaluation.json").read_text() == "earlier"
    assert CliRunner().invoke(main, [*command, "--overwrite"]).exit_code == 0
    assert list(json.loads((tmp_path / "evaluation.json").read_text())) == ["expert"]


def test_evaluating_the_same_policy_again_gives_what_training_found(whole, tmp_path):
    result = CliRunner().invoke(main, ["eval", str(whole), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "evaluation.json").read_text())
    for row in read_json_lines(whole / "metrics.jsonl")[-2:]:
        assert found[row["sampling"]]["overall"]["success"] == row["success"]


def test_the_expert_is_evaluated(config_file, tmp_path):
    result = CliRunner().invoke(
        main, ["eval", str(config_file), "--expert", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    assert "expert                           1.000" in result.output


def test_demonstrations_are_written(tmp_path):
    out = tmp_path / "demos.jsonl"
    result = CliRunner().invoke(
        main, ["demos", "textcraft", "--num", "12", "--split", "test", "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    assert result.output == f"{out}: 12 episodes, 12 judged successful by textcraft\n"
    rows = read_json_lines(out)
    assert len({row["item_id"] for row in rows}) == 12
    command = ["demos", "textcraft", "--num", "1", "--out", str(out)]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "demos.jsonl exists: write elsewhere with --out FILE" in refused.output
    assert CliRunner().invoke(main, [*command, "--overwrite"]).exit_code == 0
    assert len(read_json_lines(out)) == 1
    assert rows[0]["messages"][-1]["role"] == "assistant"
