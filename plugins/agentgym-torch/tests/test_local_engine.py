import asyncio

import numpy as np
import pytest
import torch

from agentgym_core.types import Request
from agentgym_torch import slots
from agentgym_torch.slots import SlotPath
from agentgym_torch.solo import SoloPath

EXACT = 1e-5


def request(token_ids, max_tokens=5, **changes) -> Request:
    return Request(
        token_ids=tuple(token_ids), max_tokens=max_tokens, stop_ids=frozenset(), **changes
    )


def count_computed(sampler) -> list[int]:
    """Grows by the number of ids, padding included, of every forward pass."""
    counts: list[int] = []
    embedding = sampler._model.get_input_embeddings()
    embedding.register_forward_pre_hook(lambda _, args: counts.append(args[0].numel()))
    return counts


def worst_difference(sampler, sequences, plain_logprobs, temperature=1.0) -> float:
    return max(
        np.abs(s.logprobs - plain_logprobs(sampler._model, s.token_ids, temperature))[s.mask].max()
        for s in sequences
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_sampled_logprobs_are_the_trainers(
    start_engine, start_trainer, play, plain_logprobs, temperature
):
    """Ragged prompts, many turns, cache reuse: the numbers of one plain pass, and the trainer's."""

    async def run():
        sampler = await start_engine()
        assert isinstance(sampler._path, SlotPath)
        sequences = await play(sampler, range(9), turns=4, temperature=temperature)
        return sampler, sequences

    sampler, sequences = asyncio.run(run())
    assert worst_difference(sampler, sequences, plain_logprobs, temperature) < EXACT
    trainer = start_trainer({"temperature": temperature}, tokens_per_micro_batch=100)
    scores = trainer.score(sequences, frozenset({"logprobs"}))
    for sequence, logprobs in zip(sequences, scores.logprobs, strict=True):
        assert np.abs(sequence.logprobs - logprobs).max() < EXACT


def test_every_token_of_an_episode_is_computed_once(start_engine, play):
    async def run():
        sampler = await start_engine()
        computed = count_computed(sampler)
        (sequence,) = await play(sampler, [3], turns=4)
        return len(sequence), sum(computed)

    length, computed = asyncio.run(run())
    assert computed == length - 1  # the last sampled id is never read


@pytest.mark.parametrize("max_batch_size", [1, 2, 3])
def test_slots_are_evicted_and_used_again_without_a_trace(
    start_engine, play, plain_logprobs, max_batch_size
):
    async def run():
        sampler = await start_engine(max_batch_size=max_batch_size)
        return sampler, await play(sampler, range(8))

    sampler, sequences = asyncio.run(run())
    assert worst_difference(sampler, sequences, plain_logprobs) < EXACT


def test_the_least_recently_used_episode_gives_way(start_engine):
    async def run():
        sampler = await start_engine(max_batch_size=2)
        computed = count_computed(sampler)
        prompt = list(range(10, 30))
        for key in ("a", "b", "a", "c"):  # c takes the slot of b
            await sampler.complete(request([ord(key) % 60, *prompt], 1, key=key))
        del computed[:]
        for key, cost in (("a", 1), ("b", 22)):
            ids = [ord(key) % 60, *prompt, 7]
            completion = await sampler.complete(request(ids, 1, key=key))
            assert len(completion.token_ids) == 1
            assert computed.pop() == cost, key

    asyncio.run(run())


def test_a_released_slot_goes_first(start_engine):
    async def run():
        sampler = await start_engine(max_batch_size=2)
        computed = count_computed(sampler)
        for key in ("a", "b"):
            await sampler.complete(request([ord(key) % 60, 1, 2], 1, key=key))
        sampler.release("b")
        await sampler.complete(request([9, 9], 1, key="c"))
        del computed[:]
        await sampler.complete(request([ord("a") % 60, 1, 2, 3], 1, key="a"))
        assert computed == [1]

    asyncio.run(run())


def test_siblings_compute_their_common_prompt_once(start_engine, plain_logprobs):
    prompt = [(11 * i) % 60 for i in range(50)]

    async def run():
        sampler = await start_engine()
        computed = count_computed(sampler)
        completions = await asyncio.gather(
            *(sampler.complete(request(prompt, 1, seed=i, key=str(i))) for i in range(8))
        )
        return sampler, completions, computed

    sampler, completions, computed = asyncio.run(run())
    assert computed == [50, 7]  # one whole prompt, then the last id of the 7 others
    for i, completion in enumerate(completions):
        ids = [*prompt, *completion.token_ids]
        expected = plain_logprobs(sampler._model, ids)[-1]
        assert completion.logprobs[0] == pytest.approx(expected, abs=EXACT), i
    assert len({completion.token_ids for completion in completions}) > 1


def test_prompts_that_begin_alike_share_the_beginning(start_engine, plain_logprobs):
    common = [(11 * i) % 60 for i in range(40)]
    prompts = [[*common, *range(i, i + 10)] for i in range(3)]

    async def run():
        sampler = await start_engine()
        computed = count_computed(sampler)
        completions = await asyncio.gather(*(sampler.complete(request(p, 1)) for p in prompts))
        return sampler, completions, computed

    sampler, completions, computed = asyncio.run(run())
    assert computed == [50, 2 * 10]
    for prompt, completion in zip(prompts, completions, strict=True):
        expected = plain_logprobs(sampler._model, [*prompt, *completion.token_ids])[-1]
        assert completion.logprobs[0] == pytest.approx(expected, abs=EXACT)


def test_long_prompts_are_computed_in_portions(start_engine, play, plain_logprobs, monkeypatch):
    monkeypatch.setattr(slots, "PREFILL_TOKENS", 8)

    async def run():
        sampler = await start_engine()
        computed = count_computed(sampler)
        sequences = await play(sampler, range(5))
        return sampler, sequences, max(computed)

    sampler, sequences, most = asyncio.run(run())
    assert most <= 8
    assert worst_difference(sampler, sequences, plain_logprobs) < EXACT


def test_the_cache_grows_in_the_middle_of_a_reply(start_engine, plain_logprobs):
    async def run():
        sampler = await start_engine()
        prompts = ([(7 * i) % 60 for i in range(252)], [3, 4, 5])
        return (
            sampler,
            prompts,
            await asyncio.gather(*(sampler.complete(request(prompt, 12)) for prompt in prompts)),
        )

    sampler, prompts, completions = asyncio.run(run())
    for prompt, completion in zip(prompts, completions, strict=True):
        expected = plain_logprobs(sampler._model, [*prompt, *completion.token_ids])[len(prompt) :]
        assert np.abs(expected - completion.logprobs).max() < EXACT


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("second", [[1, 2, 3, 9, 9, 9, 9, 9, 9], [1, 2], [7, 7, 7, 7, 7, 7, 7, 7]])
def test_an_episode_may_rewrite_its_history(start_engine, plain_logprobs, deterministic, second):
    async def run():
        sampler = await start_engine(deterministic=deterministic)
        await sampler.complete(request([1, 2, 3, 4, 5], 3, key="a"))
        return sampler, await sampler.complete(request(second, 3, key="a"))

    sampler, completion = asyncio.run(run())
    expected = plain_logprobs(sampler._model, [*second, *completion.token_ids])[len(second) :]
    assert np.abs(expected - completion.logprobs).max() < EXACT


def test_two_runs_are_equal_bit_for_bit(start_engine, play):
    async def run():
        return await play(await start_engine(max_batch_size=5), range(12), turns=4)

    for a, b in zip(asyncio.run(run()), asyncio.run(run()), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.logprobs.tolist() == b.logprobs.tolist()


def test_when_no_episode_is_left_the_engine_is_as_new(start_engine, play):
    """So that a step's floating point does not depend on the steps before it."""

    async def run():
        sampler = await start_engine(max_batch_size=5)
        await play(sampler, range(20, 27))
        again = await play(sampler, range(12), turns=4)
        computed = count_computed(sampler)
        for _ in range(2):  # without a key, too
            await sampler.complete(request(range(30), 1))
        assert computed == [30, 30]
        return again

    async def fresh():
        return await play(await start_engine(max_batch_size=5), range(12), turns=4)

    for a, b in zip(asyncio.run(run()), asyncio.run(fresh()), strict=True):
        assert a.logprobs.tolist() == b.logprobs.tolist()


def test_deterministic_replies_do_not_depend_on_the_company(start_engine, play):
    async def run(numbers):
        sampler = await start_engine(deterministic=True)
        assert isinstance(sampler._path, SoloPath)
        return await play(sampler, numbers)

    alone = asyncio.run(run([4]))[0]
    in_company = asyncio.run(run(range(7)))[4]
    assert alone.token_ids.tolist() == in_company.token_ids.tolist()
    assert alone.logprobs.tolist() == in_company.logprobs.tolist()


def test_deterministic_and_batched_sampling_agree(start_engine, play):
    async def run(deterministic):
        return await play(await start_engine(deterministic=deterministic), range(6))

    for a, b in zip(asyncio.run(run(True)), asyncio.run(run(False)), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert np.abs(a.logprobs - b.logprobs).max() < EXACT


@pytest.mark.parametrize("deterministic", [False, True])
def test_new_weights_forget_the_cache(start_engine, start_trainer, sequence, deterministic):
    """A probe's logprobs equal the trainer's, and have moved."""
    trainer = start_trainer(learning_rate=0.02)
    prompt = list(range(20, 40))

    async def probe(sampler):
        return await sampler.complete(request(prompt, 6, temperature=0.0, key="probe"))

    async def run():
        sampler = await start_engine(deterministic=deterministic)
        before = await probe(sampler)
        _nudge(trainer, prompt)
        await sampler.load(trainer.weights(), 3)
        return before, await probe(sampler)

    before, after = asyncio.run(run())
    assert (before.policy_version, after.policy_version) == (0, 3)
    assert abs(before.logprobs[0] - after.logprobs[0]) > 0.01
    ids = [*prompt, *after.token_ids]
    mask = [False] * len(prompt) + [True] * len(after.token_ids)
    scores = trainer.score([sequence(ids, mask)], frozenset({"logprobs"}))
    assert np.abs(scores.logprobs[0][len(prompt) :] - after.logprobs).max() < EXACT


def _nudge(trainer, prompt):
    with torch.no_grad():
        for _, parameter in trainer.weights():
            parameter.mul_(1.2)


def test_a_running_request_starts_over_under_new_weights(start_engine, start_trainer):
    trainer = start_trainer()
    prompt = [8, 9, 10, 11]

    async def run():
        sampler = await start_engine(max_batch_size=1)
        running = asyncio.create_task(sampler.complete(request(prompt, 40, seed=5, key="a")))
        waiting = asyncio.create_task(sampler.complete(request(prompt, 40, seed=6)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert 0 < len(sampler._running[0].logprobs) < 40
        _nudge(trainer, prompt)
        await sampler.load(trainer.weights(), 1)
        interrupted = await running, await waiting
        again = [await sampler.complete(request(prompt, 40, seed=seed)) for seed in (5, 6)]
        return interrupted, again

    interrupted, again = asyncio.run(run())
    for a, b in zip(interrupted, again, strict=True):
        assert a.policy_version == 1
        assert a.token_ids == b.token_ids
        assert np.abs(np.subtract(a.logprobs, b.logprobs)).max() < EXACT


def test_weights_come_under_the_names_of_the_model(start_engine):
    async def run():
        sampler = await start_engine()
        named = dict(sampler._model.named_parameters())
        assert "lm_head.weight" not in named  # tied: it may come, and need not
        tied = named | {"lm_head.weight": named["model.embed_tokens.weight"]}
        await sampler.load(tied.items(), 1)
        with pytest.raises(ValueError, match="unheard_of', which the model does not have"):
            await sampler.load([("model.unheard_of", torch.zeros(1))], 2)
        del named["model.norm.weight"]
        with pytest.raises(ValueError, match="lack 1 parameters of the model, 'model"):
            await sampler.load(named.items(), 3)

    asyncio.run(run())


def test_bfloat16_samples(start_engine, play, plain_logprobs):
    async def run():
        sampler = await start_engine(dtype="bfloat16")
        assert isinstance(sampler._path, SlotPath)
        return sampler, await play(sampler, range(4))

    sampler, sequences = asyncio.run(run())
    sampler._model.float()
    assert worst_difference(sampler, sequences, plain_logprobs) < 0.5
