import asyncio
import json
import types
from math import log

import pytest
import torch

from agentgym_core.expert import Demonstrator
from agentgym_core.renderer import Renderer
from agentgym_core.settings import Limits
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.types import TokenTensors
from agentgym_sft.sft import SFT


class RecordingTrainer:
    def __init__(self):
        self.batches = []

    def update(self, batch, loss):
        self.batches.append(batch)
        return {"loss": 0.0}


def write(path, num, *, loss=True):
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"goal {n}"},
                {"role": "assistant", "content": "craft", "loss": loss or n == 0},
            ]
        }
        for n in range(num)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def make_run(**fields):
    limits = Limits(max_prompt_tokens=40, max_response_tokens=40, max_tokens=20)
    return types.SimpleNamespace(
        seed=1,
        renderer=Renderer(byte_tokenizer()),
        trainer=RecordingTrainer(),
        config=types.SimpleNamespace(limits=limits),
        **fields,
    )


def test_every_demonstration_is_seen_once_in_an_epoch(tmp_path):
    sft, run = SFT(data=write(tmp_path / "d.jsonl", 8), batch_size=4), make_run()
    run.prepared = asyncio.run(sft.prepare(run))
    for step in range(4):
        asyncio.run(sft.train_step(run, step))
    seen = [
        row.token_ids.tobytes()
        for batch in run.trainer.batches
        for minibatch in batch.minibatches
        for row in minibatch.rows
    ]
    assert len(seen) == 16
    assert len(set(seen[:8])) == len(set(seen[8:])) == 8
    assert seen[:8] != seen[8:]
    # a step is a function of its number: a resumed run sees what an uninterrupted one would
    again = make_run(prepared=run.prepared)
    asyncio.run(sft.train_step(again, 3))
    assert [r.token_ids.tobytes() for r in again.trainer.batches[0].minibatches[0].rows] == [
        r.token_ids.tobytes() for r in run.trainer.batches[3].minibatches[0].rows
    ]


def test_the_loss_is_the_mean_cross_entropy_of_the_learned_tokens(tmp_path):
    """Six tokens, of which the 3rd, 5th and 6th are learned: -(ln 1/2 + ln 1/4 + ln 1/8) / 3."""
    sft, run = SFT(data=write(tmp_path / "d.jsonl", 3), batch_size=3), make_run()
    run.prepared = asyncio.run(sft.prepare(run))
    asyncio.run(sft.train_step(run, 0))
    (minibatch,) = run.trainer.batches[0].minibatches
    weights = [w for row in minibatch.rows for w in row.weights]
    masks = [m for row in minibatch.rows for m in row.mask]
    assert sum(weights) == pytest.approx(1.0)
    assert all((w > 0) == m for w, m in zip(weights, masks, strict=True))

    mask = torch.tensor([[False, False, True, False, True, True]])
    nan = float("nan")
    logprobs = torch.tensor([[nan, nan, log(1 / 2), -9.0, log(1 / 4), log(1 / 8)]])
    zeros = torch.zeros(1, 6)
    tokens = TokenTensors(
        logprobs_NT=logprobs.requires_grad_(),
        mask_NT=mask,
        advantages_NT=torch.ones(1, 6),
        old_logprobs_NT=zeros,
        sampled_logprobs_NT=zeros,
    )
    loss_NT, _ = sft.loss(tokens)
    loss = (loss_NT * mask / 3).sum()
    assert loss.item() == pytest.approx(6 * log(2) / 3)
    loss.backward()
    assert tokens.logprobs_NT.grad.tolist() == [pytest.approx([0, 0, -1 / 3, 0, -1 / 3, -1 / 3])]


def test_demonstrations_without_a_learned_turn_are_left_out(tmp_path):
    sft, run = SFT(data=write(tmp_path / "d.jsonl", 5, loss=False)), make_run()
    assert len(asyncio.run(sft.prepare(run))) == 1


def test_what_goes_beyond_the_limits_is_said_and_not_learned(tmp_path, caplog):
    row = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "craft"}]
    long = [*row, {"role": "user", "content": "on" * 40}, row[1]]
    rows = [row, long, [{**row[0], "content": "go" * 20}, row[1]]]
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in rows))
    first, second = asyncio.run(SFT(data=str(path)).prepare(make_run()))
    found = [[s.token_ids.tolist() for s in lesson.sequences] for lesson in (first, second)]
    assert found[0] == found[1]
    assert "2 of 3 demonstrations do not fit limits" in caplog.text


def test_nothing_to_learn_is_an_error(tmp_path):
    path = tmp_path / "d.jsonl"
    row = [{"role": "user", "content": "go" * 20}, {"role": "assistant", "content": "craft"}]
    path.write_text(json.dumps({"messages": row}) + "\n")
    with pytest.raises(ValueError, match="none of 1 demonstrations has a turn to learn"):
        asyncio.run(SFT(data=str(path)).prepare(make_run()))


def test_imitation_learns_at_temperature_1_whatever_the_engine_samples_at():
    assert SFT(num_demonstrations=1).training_temperature(0.6) == 1.0


@pytest.mark.parametrize(
    "fields", [{}, {"data": "a.jsonl", "num_demonstrations": 3}], ids=["neither", "both"]
)
def test_data_and_num_demonstrations_exclude_each_other(fields):
    with pytest.raises(ValueError, match="give exactly one of `data`"):
        SFT(**fields)


def test_values_are_checked():
    with pytest.raises(ValueError, match="batch_size"):
        SFT(num_demonstrations=1, batch_size=0)
    with pytest.raises(ValueError, match="mistakes"):
        Demonstrator(mistakes=1.5)


def test_files_that_are_missing_are_said_at_once(tmp_path):
    SFT(num_demonstrations=1).check_files()
    with pytest.raises(ValueError, match="data: there is no file"):
        SFT(data=str(tmp_path / "nowhere.jsonl")).check_files()


def test_what_was_read_is_noted(tmp_path, caplog):
    rows = [[{"role": "user", "content": "go"}, {"role": "assistant", "content": "a"}]] * 2
    path = tmp_path / "rows.jsonl"
    text = [{"messages": row, "reward": n} for n, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in text))
    caplog.set_level("INFO")
    (lesson,) = asyncio.run(SFT(data=str(path), min_reward=0.5).prepare(make_run()))
    assert lesson.num_learned == 2
    assert "it learns from 1 of 2 conversations" in caplog.text
