"""Tiny random models of many families: sampled, plain and trained log-probabilities agree.

So do the values of a critic of their own and of one on their trunk.
"""

import asyncio
import logging

import attrs
import numpy as np
import pytest
import torch
import transformers

from agentgym_core import hf
from agentgym_core.model import ModelConfig
from agentgym_core.types import Row
from agentgym_torch.critic import CriticOptions
from agentgym_torch.slots import SlotPath
from agentgym_torch.solo import SoloPath

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
SHARED = {
    "llama": (transformers.LlamaConfig, GROUPED),
    "gpt2": (transformers.GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt-neox": (transformers.GPTNeoXConfig, SIZES),
    "gemma": (transformers.GemmaConfig, {**GROUPED, "head_dim": 16}),
    "qwen3": (transformers.Qwen3Config, {**GROUPED, "head_dim": 16}),
    "qwen3-moe": (
        transformers.Qwen3MoeConfig,
        {**GROUPED, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2},
    ),
    "mistral": (transformers.MistralConfig, {**GROUPED, "sliding_window": None}),
}
"""Computed in shared batches."""
ALONE = {
    "mistral-sliding": (transformers.MistralConfig, {**GROUPED, "sliding_window": 8}, "all"),
    "gemma2": (transformers.Gemma2Config, {**GROUPED, "head_dim": 16, "sliding_window": 8}, "all"),
    "qwen2-sliding": (
        transformers.Qwen2Config,
        {**GROUPED, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        "all",
    ),
    "bloom": (transformers.BloomConfig, {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "all"),
    "mamba": (
        transformers.MambaConfig,
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        "one",
    ),
}
"""Computed one request at a time, and how ids are fed."""


@pytest.fixture
def build(model, tmp_path):
    """Save a random model of a family, sharp enough that a wrong position shows."""

    def build(config_class, sizes) -> ModelConfig:
        ids = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": None}
        config = config_class(vocab_size=70, **ids, **sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            policy = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            embedding = policy.get_input_embeddings().weight
            embedding.mul_(0.2 / embedding.std())
        hf.export(policy, hf.load_tokenizer(model), tmp_path)
        return ModelConfig(path=str(tmp_path))

    return build


@pytest.fixture
def check_critic(start_trainer, training):
    """A critic on the family's trunk, its own or the policy's, learns, and has the same values."""

    def check(config, sequences):
        needs = frozenset({"values", "final_values"})
        cut = [attrs.evolve(sequence, truncated=True) for sequence in sequences]
        rows = [_row(sequence) for sequence in sequences]
        found = []
        for shared in (False, True):
            critic = CriticOptions(shared=shared)
            trainer = start_trainer({"model": config, "needs": needs}, critic=critic)
            with torch.no_grad():
                trainer._critic._head.weight.copy_(torch.linspace(-0.5, 0.5, 32)[None])
            found.append(trainer.score(cut, needs))
            before = training.state(trainer)
            trainer.update(training.batch(rows), _value_loss)
            after = training.state(trainer)
            if not shared:
                training.assert_same_state(before[:1], after[:1])
            moved = [n for n, t in before[1][0].items() if not torch.equal(t, after[1][0][n])]
            assert moved == ["head.weight", "head.bias"] if shared else len(moved) > 5
        own, common = found
        for left, right in zip(own.values, common.values, strict=True):
            assert np.abs(left - right).max() < 1e-5
        assert np.ptp(np.concatenate(own.values)) > 0.01
        assert np.abs(own.final_values - common.final_values).max() < 1e-5
        assert own.final_values.all()

    return check


def _row(sequence):
    numbers = np.where(sequence.mask, 1.0, 0.0)
    return Row(
        token_ids=sequence.token_ids,
        mask=sequence.mask,
        weights=numbers / 50,
        advantages=numbers,
        old_logprobs=sequence.logprobs,
        sampled_logprobs=sequence.logprobs,
        old_values=0 * numbers,
        returns=numbers,
    )


def _value_loss(tokens):
    return (tokens.values_NT - tokens.returns_NT).square(), {}


def check(config, path_class, start_engine, start_trainer, play, plain_logprobs):
    async def run():
        sampler = await start_engine(config)
        return sampler, await play(sampler, range(5))

    sampler, sequences = asyncio.run(run())
    assert isinstance(sampler._path, path_class)
    trainer = start_trainer({"model": config}, tokens_per_micro_batch=90)
    trained = trainer.score(sequences, frozenset({"logprobs"})).logprobs
    for s, scores in zip(sequences, trained, strict=True):
        plain = plain_logprobs(trainer._policy, s.token_ids)
        assert np.ptp(plain[s.mask]) > 0.1  # not a flat model
        assert np.abs(s.logprobs - plain)[s.mask].max() < 1e-5
        assert np.abs(scores - plain)[s.mask].max() < 1e-5
    return sampler, sequences


@pytest.mark.parametrize("family", SHARED)
def test_models_of_full_attention_share_batches(
    family, build, start_engine, start_trainer, play, plain_logprobs, check_critic, caplog
):
    with caplog.at_level(logging.WARNING, logger="agentgym_torch"):
        config = build(*SHARED[family])
        parts = start_engine, start_trainer, play, plain_logprobs
        _, sequences = check(config, SlotPath, *parts)
        check_critic(config, sequences)
    assert not [r for r in caplog.records if r.name.startswith("agentgym_torch")]


@pytest.mark.parametrize("family", ALONE)
def test_other_models_are_computed_alone_and_a_warning_says_why(
    family, build, start_engine, start_trainer, play, plain_logprobs, check_critic, caplog
):
    *recipe, portions = ALONE[family]
    with caplog.at_level(logging.WARNING, logger="agentgym_torch"):
        config = build(*recipe)
        parts = start_engine, start_trainer, play, plain_logprobs
        sampler, sequences = check(config, SoloPath, *parts)
        check_critic(config, sequences)
    assert sampler._path._portions == portions
    (record,) = [r for r in caplog.records if r.name.startswith("agentgym_torch")]
    assert "is sampled one request at a time, which is slow: it" in record.getMessage()


def test_without_a_cache_everything_is_computed_again(
    model, start_engine, play, plain_logprobs, monkeypatch
):
    monkeypatch.setattr("agentgym_torch.self_check.cache_argument", lambda model: None)

    async def run():
        sampler = await start_engine()
        return sampler, await play(sampler, range(3))

    sampler, sequences = asyncio.run(run())
    assert sampler._path._portions == "again"
    for s in sequences:
        plain = plain_logprobs(sampler._model, s.token_ids)
        assert np.abs(s.logprobs - plain)[s.mask].max() < 1e-5


def test_rotary_embeddings_that_grow_keep_a_model_from_sharing(build, start_engine):
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    config = build(transformers.LlamaConfig, {**GROUPED, "rope_parameters": rope})
    sampler = asyncio.run(start_engine(config))
    assert isinstance(sampler._path, SoloPath)


def test_eager_attention_agrees(model, start_engine, play, plain_logprobs):
    eager = ModelConfig(path=model.path, attn_implementation="eager")

    async def run():
        sampler = await start_engine(eager)
        return sampler, await play(sampler, range(5))

    sampler, sequences = asyncio.run(run())
    assert sampler._model.config._attn_implementation == "eager"
    assert isinstance(sampler._path, SlotPath)
    for s in sequences:
        plain = plain_logprobs(sampler._model, s.token_ids)
        assert np.abs(s.logprobs - plain)[s.mask].max() < 1e-5
