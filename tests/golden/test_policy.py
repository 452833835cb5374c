"""The policy that learns is the policy that sampled: the engine's numbers against the trainer's."""

import asyncio

import attrs
import numpy as np
import pytest

from agentgym_core import hf
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.protocols import StartContext
from agentgym_core.types import Batch, Minibatch, Request, Row, TokenSequence
from agentgym_torch.backend import TorchBackend
from agentgym_torch.engine import LocalEngine

LOGPROBS = frozenset({"logprobs"})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    words = " ".join(f"w{a}{b}" for a in "abcdef" for b in "abcdef")
    sizes = ScratchModel(hidden_size=32, num_layers=2, intermediate_size=48)
    hf.build_scratch(sizes, [words], folder, seed=1)
    return ModelConfig(path=str(folder))


def started(model, temperature=1.0, **options):
    context = StartContext(model=model, seed=0, num_steps=4, temperature=temperature)
    backend = TorchBackend(device="cpu", **{"learning_rate": 0.05} | options)
    sampler = asyncio.run(LocalEngine(device="cpu").start(context))
    return backend.start(context), sampler


def played(sampler, number, temperature, turns=3):
    """An episode of prompts and replies, as training sees it."""
    draw = np.random.default_rng(number)
    ids, mask, logprobs = [], [], []
    for turn in range(turns):
        prompt = draw.integers(0, 40, draw.integers(3, 9)).tolist()
        ids, mask, logprobs = (
            ids + prompt,
            mask + [False] * len(prompt),
            logprobs + [0.0] * len(prompt),
        )
        request = Request(
            token_ids=tuple(ids),
            max_tokens=5,
            stop_ids=frozenset({5}),
            temperature=temperature,
            seed=100 * number + turn,
        )
        completion = asyncio.run(sampler.complete(request))
        ids = ids + list(completion.token_ids)
        mask = mask + [True] * len(completion.token_ids)
        logprobs = logprobs + list(completion.logprobs)
    return TokenSequence(
        token_ids=np.array(ids),
        mask=np.array(mask),
        logprobs=np.array(logprobs),
        rewards=np.zeros(len(ids)),
        turns=np.where(mask, 0, -1),
        versions=np.where(mask, 0, -1),
        episode=number,
        group=number,
    )


def row(sequence, old):
    weights = sequence.mask / sequence.mask.sum()
    return Row(
        token_ids=sequence.token_ids,
        mask=sequence.mask,
        weights=weights,
        advantages=sequence.mask * 1.0,
        old_logprobs=old,
        sampled_logprobs=sequence.logprobs,
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_first_ratio_is_1_at_any_temperature(model, temperature):
    trainer, sampler = started(model, temperature)
    sequences = [played(sampler, number, temperature) for number in range(4)]
    scored = trainer.score(sequences, LOGPROBS).logprobs
    for sequence, logprobs in zip(sequences, scored, strict=True):
        assert np.abs(logprobs - sequence.logprobs).max() < 1e-5
    ratios = []

    def loss(tokens):
        ratio_NT = (tokens.logprobs_NT - tokens.old_logprobs_NT).exp()
        ratios.extend(ratio_NT.detach()[tokens.mask_NT].tolist())
        return -ratio_NT * tokens.advantages_NT, {}

    rows = tuple(row(s, old) for s, old in zip(sequences, scored, strict=True))
    trainer.update(Batch(step=0, minibatches=(Minibatch(rows=rows),)), loss)
    assert len(ratios) == sum(int(s.mask.sum()) for s in sequences)
    assert np.abs(np.array(ratios) - 1).max() < 1e-6


def test_a_wrong_temperature_would_show(model):
    trainer, _ = started(model, 1.0)
    _, sampler = started(model, 0.6)
    sequence = played(sampler, 1, 0.6)
    [scored] = trainer.score([sequence], LOGPROBS).logprobs
    assert np.abs(scored - sequence.logprobs).max() > 0.01


def test_sequences_computed_together_do_not_see_each_other(model):
    trainer, sampler = started(model, tokens_per_micro_batch=4096)
    one, other = (played(sampler, number, 1.0) for number in (1, 2))
    together = trainer.score([one, other], LOGPROBS).logprobs[0]
    changed = attrs.evolve(other, token_ids=(other.token_ids + 7) % 40)
    beside_another = trainer.score([one, changed], LOGPROBS).logprobs[0]
    alone = trainer.score([one], LOGPROBS).logprobs[0]
    assert np.abs(together - beside_another).max() < 1e-6
    assert np.abs(together - alone).max() < 1e-5


def test_after_an_update_the_engine_has_the_trainers_policy_and_it_has_moved(model):
    """Mere equality would also hold if neither had changed."""
    trainer, sampler = started(model)
    sequences = [played(sampler, number, 1.0) for number in range(3)]
    before = trainer.score(sequences, LOGPROBS).logprobs
    rows = tuple(row(s, old) for s, old in zip(sequences, before, strict=True))
    trainer.update(
        Batch(step=0, minibatches=(Minibatch(rows=rows),)),
        lambda tokens: (-tokens.logprobs_NT * tokens.advantages_NT, {}),
    )
    asyncio.run(sampler.load(trainer.weights(), 1))
    probe = [played(sampler, number, 1.0) for number in range(3)]
    after = trainer.score(probe, LOGPROBS).logprobs
    for sequence, logprobs in zip(probe, after, strict=True):
        assert np.abs(logprobs - sequence.logprobs).max() < 1e-5
    moved = trainer.score(sequences, LOGPROBS).logprobs
    assert max(np.abs(a - b).max() for a, b in zip(moved, before, strict=True)) > 0.01
