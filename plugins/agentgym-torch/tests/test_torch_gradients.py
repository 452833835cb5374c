import copy
import math

import attrs
import numpy as np
import pytest
import torch
import transformers

from agentgym_core import hf
from agentgym_core.model import ModelConfig
from agentgym_core.types import Row

LOGPROBS = frozenset({"logprobs"})


def test_the_gradient_is_that_of_the_weighted_sum(training, start_trainer):
    """Independently: one row at a time, unpadded, the whole table of logits."""
    trainer = start_trainer({"temperature": 0.7}, tokens_per_micro_batch=64)
    rows = training.rows(7)
    reference = copy.deepcopy(trainer._policy)
    total = 0
    for row in rows:
        ids = torch.as_tensor(row.token_ids)
        logits = reference(input_ids=ids[None], use_cache=False).logits[0, :-1] / 0.7
        logprobs = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
        advantages = torch.as_tensor(row.advantages[1:]).float()
        loss = -(logprobs + 4.0).exp() * advantages
        total = total + (loss * torch.as_tensor(row.weights[1:]).float()).sum()
    total.backward()
    expected = [parameter.grad for parameter in reference.parameters()]
    metrics = trainer.update(training.batch(rows), training.loss)
    assert metrics["loss"] == pytest.approx(float(total.detach()), rel=1e-5)
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in expected))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    # the trainer clipped it to norm 1
    scale = min(1.0, 1.0 / norm)
    found = training.gradients(start_trainer({"temperature": 0.7}), rows)
    assert training.difference(found, [gradient * scale for gradient in expected]) < 1e-5


@pytest.mark.parametrize("budget", [1, 40, 150, 100_000])
def test_the_gradient_does_not_depend_on_the_micro_batches(training, start_trainer, budget):
    rows = training.rows(12)
    whole = training.gradients(start_trainer(tokens_per_micro_batch=400), rows)
    assert (
        training.difference(
            training.gradients(start_trainer(tokens_per_micro_batch=budget), rows), whole
        )
        < 1e-6
    )


def test_a_row_without_trained_tokens_contributes_nothing(training, start_trainer):
    rows = training.rows(5)
    nothing = np.zeros(6)
    silent = Row(
        token_ids=np.arange(6),
        mask=np.zeros(6, np.bool_),
        weights=nothing,
        advantages=nothing,
        old_logprobs=nothing,
        sampled_logprobs=nothing,
    )
    with_it = training.gradients(start_trainer(), [silent, *rows])
    assert training.difference(with_it, training.gradients(start_trainer(), rows)) < 1e-6
    trainer = start_trainer()
    before = training.state(trainer)
    assert trainer.update(training.batch([silent]), training.loss) == {"learning_rate": 1e-6}
    training.assert_same_state(before, training.state(trainer))


def test_tokens_outside_the_mask_have_no_loss(training, start_trainer):
    """Whatever they carry: infinite weights and advantages change nothing."""
    rows = training.rows(4)
    wild = [
        attrs.evolve(
            row,
            advantages=np.where(row.mask, row.advantages, np.inf),
            weights=np.where(row.mask, row.weights, np.inf),
        )
        for row in rows
    ]

    def loss(tokens):
        return training.loss(tokens)[0].masked_fill(~tokens.mask_NT, 1.0), {}

    assert (
        training.difference(
            training.gradients(start_trainer(), wild, loss),
            training.gradients(start_trainer(), rows),
        )
        < 1e-6
    )


def test_the_first_epoch_on_policy_has_ratio_1(training, start_trainer):
    trainer = start_trainer(tokens_per_micro_batch=60)
    rows = training.rows(10)
    old = trainer.score(rows, LOGPROBS).logprobs
    rows = [attrs.evolve(row, old_logprobs=o) for row, o in zip(rows, old, strict=True)]
    ratios = []

    def loss(tokens):
        ratio_NT = (tokens.logprobs_NT - tokens.old_logprobs_NT).exp()
        ratios.extend(ratio_NT.detach()[tokens.mask_NT].tolist())
        return -ratio_NT * tokens.advantages_NT, {}

    trainer.update(training.batch(rows), loss)
    assert len(ratios) == sum(row.mask.sum() for row in rows)
    assert np.abs(np.array(ratios) - 1).max() < 1e-6


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_checkpointing_layers_gives_the_same_gradient_without_dropout(
    training, start_trainer, model, family, tmp_path
):
    """Both families drop out 10 % in training mode, GPT-2 in modules, OPT in its layers' code."""
    sizes = {"vocab_size": 70, "bos_token_id": None, "eos_token_id": 1}
    config = {
        "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, **sizes),
        "opt": lambda: transformers.OPTConfig(
            hidden_size=32,
            word_embed_proj_dim=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=48,
            **sizes | {"pad_token_id": None},
        ),
    }[family]()
    hf.export(
        transformers.AutoModelForCausalLM.from_config(config), hf.load_tokenizer(model), tmp_path
    )
    context = {"model": ModelConfig(path=str(tmp_path))}
    rows = training.rows(5)
    plain = training.gradients(start_trainer(context), rows)
    checkpointed = start_trainer(context, gradient_checkpointing=True)
    calls = []
    attention = next(m for n, m in checkpointed._policy.named_modules() if "attn" in n)
    attention.register_forward_pre_hook(lambda *_: calls.append(1))
    assert training.difference(training.gradients(checkpointed, rows), plain) < 1e-6
    assert len(calls) == 2  # once forward, once more in the backward pass


def test_bfloat16_stays_near_float32(training, start_trainer):
    rows = training.rows(8)
    half, full = start_trainer(dtype="bfloat16"), start_trainer()
    for left, right in zip(
        half.score(rows, LOGPROBS).logprobs, full.score(rows, LOGPROBS).logprobs, strict=True
    ):
        assert 0 < np.abs(left - right).max() < 0.5
    a, b = training.gradients(half, rows), training.gradients(full, rows)
    flat = [torch.cat([tensor.flatten() for tensor in tensors]) for tensors in (a, b)]
    assert torch.cosine_similarity(*flat, dim=0) > 0.95
    assert all(tensor.dtype == torch.float32 for _, tensor in half.weights())
