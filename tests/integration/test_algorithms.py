"""Every way to learn from groups trains two steps on the real environment, engine and trainer."""

import asyncio
import math
from pathlib import Path

import pytest
import yaml

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.files import read_json_lines
from agentgym_core.train import train

SMALL = Path(__file__).with_name("small_textcraft.yaml")
REWARD = ["environment", {"use": "format-penalty", "penalty": 0.5}]
"""A policy that knows nothing rarely earns anything else."""
GSPO = {"use": "grpo", "surrogate": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}
CISPO = {"use": "grpo", "surrogate": "cispo", "clip_low": 1.0, "clip_high": 2.0, "num_epochs": 2}
DAPO = {"use": "grpo", "clip_high": 0.28, "dual_clip": 3.0, "overlong": "mask", "max_refills": 2}
PP = {"use": "reinforce-pp", "kl_coef": 0.01, "kl_target": 1.0, "num_minibatches": 2}
BASELINE = {"use": "reinforce-pp", "kl_coef": 0.01, "kl_estimator": "k2"}


def train_two_steps(folder, algorithm, **more):
    keys = {
        "include": str(SMALL),
        "name": "small",
        "output": str(folder / "runs"),
        "algorithm": algorithm,
        "rounds": {"rounds": 3},
        "backend": {"use": "torch", "learning_rate": 1.0e-3},
        "training": {"num_steps": 2, "tasks_per_step": 3, "group_size": 4},
        "reward": REWARD,
        **more,
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(keys))
    run = asyncio.run(train(load_config(path, [], Catalog.installed()), lambda row: None))
    steps = [row for row in read_json_lines(run / "metrics.jsonl") if row["phase"] == "train"]
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert all(math.isfinite(v) for v in row.values() if isinstance(v, float)), row
    assert any(row["update_skipped"] == 0 for row in steps), "nothing was learned: no test"
    return run, steps


@pytest.mark.parametrize(
    ("algorithm", "advantage", "metrics"),
    [
        (GSPO, "group-relative", {"ratio", "clip_fraction", "groups_without_signal"}),
        (CISPO, "group-relative", {"ratio", "clip_fraction", "groups_without_signal"}),
        ({"use": "grpo"}, "gigpo", {"shared_states", "groups_without_signal"}),
        ({"use": "rloo"}, None, {"groups_without_signal"}),
        ({"use": "rloo", "clip": 0.2, "num_epochs": 2, "kl_coef": 0.01}, None, {"kl", "ratio"}),
        (PP, None, {"kl", "kl_episode", "kl_coef", "return_mean", "return_std"}),
        (BASELINE, "reinforce-pp-baseline", {"kl", "return_std", "groups_without_signal"}),
    ],
    ids=["gspo", "cispo", "gigpo", "rloo", "rloo-clip", "reinforce-pp", "reinforce-pp-baseline"],
)
def test_two_steps(tmp_path, algorithm, advantage, metrics):
    more = {"advantage": advantage} if advantage else {}
    _, steps = train_two_steps(tmp_path, algorithm, **more)
    learned = [row for row in steps if row["update_skipped"] == 0]
    assert all(metrics <= set(row) for row in learned), learned


def test_two_steps_that_are_refilled_and_masked(tmp_path):
    """The record tells what was played, what was learned, and what was masked."""
    reward = [*REWARD, {"use": "soft-overlong", "max_tokens": 24, "margin": 24}]
    # A context that holds the task and two or three turns: some episodes run out of it.
    limits = {"max_response_tokens": 44, "max_tokens": 8}
    run, steps = train_two_steps(tmp_path, DAPO, reward=reward, limits=limits)
    cut = 0
    for row in steps:
        (path,) = run.glob(f"rollouts/*/step-{row['step']:06d}.jsonl")
        episodes = read_json_lines(path)
        assert len(episodes) == row["episodes"] == 4 * (3 + row["refills"])
        assert {e["group"] for e in episodes} == set(range(3 + int(row["refills"])))
        groups = {}
        for e in episodes:
            groups.setdefault(e["group"], []).append(e)
        silent = [
            len({round(e["reward"], 9) for e in group}) == 1
            or not any(turn["trained"] for e in group for turn in e["turns"])
            for group in groups.values()
        ]
        assert row["groups_without_signal"] == pytest.approx(sum(silent) / len(silent))
        for group, without in zip(groups.values(), silent, strict=True):
            assert len({e["item_id"] for e in group}) == 1
            for e in group:
                masked = e["ending"] == "out-of-tokens"
                cut += masked
                assert {turn["trained"] for turn in e["turns"]} <= {not masked}
                credit = [value for turn in e["turns"] for value in turn["advantages"]]
                assert any(credit) <= (not masked and not without)
                assert e["turns"][-1]["rewards"]["soft_overlong"] == pytest.approx(
                    -min(1.0, e["tokens"] / 24)
                )
    assert cut, "no episode ran out of tokens: no test"
