"""A file of each shape trains two steps, and says what the same conversations say in another.

One set of conversations is written in every shape. So the losses of one are the right values of all
the others: a turn more or less that is learned, or a message that is lost, gives another loss.
"""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError
from agentgym_core.files import read_json_lines
from agentgym_core.metrics import is_time
from agentgym_core.train import train
from agentgym_torch.backend import TorchBackend

SMALL = Path(__file__).with_name("small_textcraft.yaml")
RULES = {"role": "user", "content": "get, craft or inventory"}
ACKNOWLEDGED = {"role": "assistant", "content": "OK. goal", "loss": False}
OPENING = [RULES, ACKNOWLEDGED]
"""AgentGym's conversations begin so; the assistant's part is nobody's."""
EXPLORE = {
    "algorithm": "explore",
    "rounds": {"rounds": 2},
    "training": {"num_steps": 1, "tasks_per_step": 2, "group_size": 2},
}


def learn(folder, *stages, **keys):
    """Train; gives the run's folder, and the rows of the last stage but for times."""
    document = {
        "include": str(SMALL),
        "name": "small",
        "output": str(folder),
        "seed": 3,
        "backend": {"use": "torch", "learning_rate": 1.0e-3},
        "rounds": {"rounds": 6},
        "training": {"num_steps": 2},
        "stages": list(stages),
        **keys,
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    run = asyncio.run(train(load_config(path, [], Catalog.installed()), lambda row: None))
    rows = [without_times(row) for row in read_json_lines(run / "metrics.jsonl")[-2:]]
    assert [row["step"] for row in rows] == [1, 2]
    return run, rows


def without_times(row):
    return {key: value for key, value in row.items() if not is_time(key)}


def imitate(folder, data):
    """The two steps of `sft` on files, of which the second has learned from the first."""
    _, rows = learn(folder, {"algorithm": {"use": "sft", "data": str(data), "batch_size": 4}})
    assert rows[0]["loss"] != rows[1]["loss"]
    return rows


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run that plays the expert and learns from it two steps, and then explores."""
    folder = tmp_path_factory.mktemp("played")
    demonstrate = {"use": "sft", "num_demonstrations": 6, "batch_size": 4,
                   "demonstrator": {"mistakes": 0.3}}  # fmt: skip
    size = {"num_steps": 2, "tasks_per_step": 2, "group_size": 2}
    run, _ = learn(folder, {"algorithm": demonstrate}, {**EXPLORE, "training": size})
    return run


@pytest.fixture(scope="module")
def conversations(played):
    """What the expert said, some of it marked as a mistake, behind AgentGym's opening."""
    rows = read_json_lines(played / "demonstrations" / "sft.jsonl")
    found = [[*OPENING, *row["messages"]] for row in rows]
    marks = [message.get("loss", True) for messages in found for message in messages[2:]]
    assert {True, False} == set(marks), "without a mistake: no test"
    return found


@pytest.fixture(scope="module")
def expected(conversations, tmp_path_factory):
    """Of the conversations as OpenAI's messages."""
    folder = tmp_path_factory.mktemp("messages")
    path = write_lines(folder / "a.jsonl", [{"messages": rows} for rows in conversations])
    return imitate(folder, path)


def write_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def unmarked(message):
    return {key: value for key, value in message.items() if key != "loss"}


def parts(folder, conversations):
    """OpenAI's rows again: content in parts, and a weight of 0 for what is not learned."""

    def message(row):
        content = [{"type": "text", "text": row["content"]}]
        weight = {"weight": int(row.get("loss", True))} if row["role"] == "assistant" else {}
        return {"role": row["role"], "content": content, **weight}

    rows = [{"messages": list(map(message, messages))} for messages in conversations]
    return write_lines(folder / "a.jsonl", rows)


def trajectories(folder, conversations):
    """AgentTraj-L: one JSON list."""

    def turn(row):
        if row["role"] == "user":
            return {"from": "human", "loss": None, "value": row["content"]}
        return {"from": "gpt", "loss": row.get("loss", True), "value": row["content"]}

    rows = [
        {"item_id": f"textcraft_{number}", "conversations": list(map(turn, messages))}
        for number, messages in enumerate(conversations)
    ]
    path = folder / "textcraft_train.json"
    path.write_text(json.dumps(rows, indent=1))
    return path


@pytest.mark.parametrize("shape", [parts, trajectories])
def test_conversations(shape, conversations, expected, tmp_path):
    assert imitate(tmp_path, shape(tmp_path, conversations)) == expected


def test_rollout_logs(conversations, tmp_path):
    """`step1/0.json` and so on, which mark nothing: all is learned but for the "OK"."""
    bare = [[*OPENING, *map(unmarked, messages[2:])] for messages in conversations]
    messages, logs = tmp_path / "messages", tmp_path / "logs"
    for rank in (0, 1):
        path = logs / "step1" / f"{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"item_id": "textcraft_0", "conversations": list(map(unmarked, found)), "reward": 1.0}
            for found in bare[3 * rank : 3 * rank + 3]
        ]
        path.write_text(json.dumps(rows))
    rows = write_lines(messages / "a.jsonl", [{"messages": found} for found in bare])
    assert imitate(tmp_path, logs) == imitate(messages, rows)


def test_our_demonstrations(played, tmp_path):
    """Learned from the file as by the stage that played them."""
    rows = read_json_lines(played / "metrics.jsonl")
    first = [without_times(row) for row in rows if row["stage"] == "sft"]
    assert imitate(tmp_path, played / "demonstrations" / "sft.jsonl") == first


def test_our_rollouts(played, tmp_path):
    """A folder of them; every turn was trained."""
    folder = played / "rollouts" / "explore"
    episodes = [row for path in sorted(folder.glob("*.jsonl")) for row in read_json_lines(path)]
    assert len(episodes) == 8
    assert all(turn["trained"] for episode in episodes for turn in episode["turns"])
    bare = [{"messages": episode["messages"]} for episode in episodes]
    other = tmp_path / "messages"
    assert imitate(tmp_path, folder) == imitate(other, write_lines(other / "a.jsonl", bare))


def test_evol_learns_from_files_too(conversations, expected, tmp_path):
    """Nothing explored earns a reward, so that it learns what `sft` does."""
    evolve = {"use": "evol", "explored": ["explore"], "batch_size": 4,
              "data": str(trajectories(tmp_path, conversations))}  # fmt: skip
    run, rows = learn(tmp_path, EXPLORE, {"algorithm": evolve})
    explored = read_json_lines(run / "rollouts" / "explore" / "step-000001.jsonl")
    assert not any(row["reward"] for row in explored)
    assert [row["loss"] for row in rows] == [row["loss"] for row in expected]


def prefer(folder, rows):
    """The two steps of `dpo` on a file of pairs."""
    data = write_lines(folder / "pairs.jsonl", rows)
    _, found = learn(folder, {"algorithm": {"use": "dpo", "data": str(data), "batch_size": 2}})
    return found


def test_pairs(conversations, tmp_path):
    """With the prompt apart, and as a part of both sides, in which nothing is learned."""
    apart = [
        {"prompt": messages[:3], "chosen": messages[3:], "rejected": messages[-1:]}
        for messages in conversations
    ]
    apart[0]["prompt"] = list(map(unmarked, apart[0]["prompt"]))
    whole = [
        {side: [*messages[:3], *row[side]] for side in ("chosen", "rejected")}
        for messages, row in zip(conversations, apart, strict=True)
    ]
    found = prefer(tmp_path / "apart", apart)
    assert found == prefer(tmp_path / "whole", whole)
    assert found[0]["loss"] == pytest.approx(0.693147, abs=1e-6)
    assert [row["pairs"] for row in found] == [2, 2]
    assert found[1]["loss"] != found[0]["loss"]


@pytest.mark.parametrize("form", ["list", "lines", "names"])
def test_item_ids(form, tmp_path):
    """AgentGym-RL's ids, of which `split: all` has every one."""
    ids = ["textcraft_0", "textcraft_374", "textcraft_5", "textcraft_543"]
    rows = [{"item_id": name} for name in ids]
    texts = {
        "list": json.dumps(rows),
        "lines": "".join(json.dumps(row) + "\n" for row in rows),
        "names": "\n".join(ids),
    }
    path = tmp_path / "textcraft_train.json"
    path.write_text(texts[form])
    everything = {"num_goals": None, "plan_lengths": None, "tags": True, "held_out": "goals",
                  "train_instances": 1, "test_instances": 1, "split": "all"}  # fmt: skip
    run, found = learn(
        tmp_path,
        {"algorithm": {"use": "grpo"}},
        tasks={"use": "from-file", "path": str(path), "shuffle": False},
        environment=everything,
        limits={"max_prompt_tokens": 500},
        rounds={"rounds": 2},
        training={"num_steps": 2, "tasks_per_step": 2, "group_size": 2},
        reward=["environment", {"use": "format-penalty", "penalty": 0.5}],
    )
    assert any(row["update_skipped"] == 0 for row in found), "nothing was learned: no test"
    files = sorted((run / "rollouts" / "grpo").glob("step-*.jsonl"))
    played = [row["item_id"] for file in files for row in read_json_lines(file)]
    assert played == [name for name in ids for _ in range(2)]


@pytest.mark.parametrize(
    "keys",
    [
        {"algorithm": {"use": "sft", "data": "nowhere.jsonl"}},
        {"algorithm": {"use": "dpo", "data": "nowhere.jsonl"}},
        {"algorithm": {"use": "grpo"}, "tasks": {"use": "from-file", "path": "nowhere.jsonl"}},
    ],
)
def test_a_file_that_is_missing_is_said_before_a_model_is_loaded(keys, tmp_path, monkeypatch):
    def start(backend, context):
        raise AssertionError("too late")

    monkeypatch.setattr(TorchBackend, "start", start)
    with pytest.raises(ConfigError, match=r"there is no file nowhere\.jsonl"):
        learn(tmp_path, keys)
    explored = {"use": "evol", "explored": ["explore"], "data": "nowhere.jsonl"}
    with pytest.raises(ValueError, match=r"there is no file nowhere\.jsonl"):
        Catalog.installed().build("algorithm", explored, "algorithm").check_files()
