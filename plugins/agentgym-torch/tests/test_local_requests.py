import asyncio

import numpy as np
import pytest
import torch

from agentgym_core.types import Request
from agentgym_torch.engine import LocalEngine

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


def test_cancelling_frees_the_row(start_engine, plain_logprobs):
    async def run():
        sampler = await start_engine(max_batch_size=1)
        first = asyncio.create_task(sampler.complete(request([5, 6, 7], 500, key="a")))
        second = asyncio.create_task(sampler.complete(request([5, 6, 8], 3)))
        third = asyncio.create_task(sampler.complete(request([5, 6, 9], 3)))
        for _ in range(60):
            await asyncio.sleep(0)
        first.cancel()  # while it runs
        third.cancel()  # while it waits
        completion = await second
        assert len(completion.token_ids) == 3
        assert (await asyncio.gather(first, third, return_exceptions=True)) != [None, None]
        assert first.cancelled()
        assert third.cancelled()
        await sampler.complete(request([5, 6, 7, 1], 3, key="a"))
        assert not sampler._running
        assert not sampler._waiting

    asyncio.run(run())


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("fault", ["error", "nan"])
def test_a_failing_pass_fails_its_requests_and_nothing_else(
    start_engine, plain_logprobs, monkeypatch, deterministic, fault
):
    def error(hidden):
        raise RuntimeError("out of memory")

    async def run():
        sampler = await start_engine(deterministic=deterministic)
        before = await sampler.complete(request([4, 5, 6], 3, key="a"))
        norm = sampler._model.model.layers[0].input_layernorm
        broken = error if fault == "error" else (lambda hidden: hidden * float("nan"))
        with monkeypatch.context() as patch:
            patch.setattr(norm, "forward", broken)
            ids = (4, 5, 6, *before.token_ids, 9)
            failed = await asyncio.gather(
                *(sampler.complete(request(ids, 3, key=key)) for key in ("a", "b")),
                return_exceptions=True,
            )
        expected = {"error": "out of memory", "nan": "the model's logits are NaN or infinite"}
        assert [str(error) for error in failed] == [expected[fault]] * 2
        return sampler, ids, await sampler.complete(request(ids, 3, key="a"))

    sampler, ids, after = asyncio.run(run())
    expected = plain_logprobs(sampler._model, [*ids, *after.token_ids])[len(ids) :]
    assert np.abs(expected - after.logprobs).max() < EXACT


def test_closing_fails_what_is_open(start_engine):
    async def run():
        sampler = await start_engine(max_batch_size=1)
        tasks = [asyncio.create_task(sampler.complete(request([5], 400))) for _ in range(2)]
        for _ in range(60):
            await asyncio.sleep(0)
        await sampler.close()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, RuntimeError)
        with pytest.raises(RuntimeError, match="closed"):
            await sampler.complete(request([5]))

    asyncio.run(run())


def test_stop_and_length(start_engine):
    async def run():
        sampler = await start_engine()
        free = await sampler.complete(request([1, 2, 3], 8, seed=3))
        assert free.finish_reason == "length"
        assert len(free.token_ids) == 8
        last = free.token_ids[4]
        stop = free.token_ids.index(last)
        stopping = Request(token_ids=(1, 2, 3), max_tokens=8, stop_ids=frozenset({last}), seed=3)
        cut = await sampler.complete(stopping)
        assert cut.finish_reason == "stop"
        assert cut.token_ids == free.token_ids[: stop + 1]
        assert len(cut.logprobs) == stop + 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request([1] * 30, 11), "30 prompt ids and 11 tokens of reply exceed .* of 40"),
        (request([], 5), "needs a prompt"),
        (request([1], 0), "max_tokens 0"),
        (request([1, 9999], 5), "vocabulary"),
        (request([-1], 5), "vocabulary"),
    ],
)
def test_a_request_that_cannot_be_computed_is_refused_before_the_model_is_asked(
    start_engine, bad, message
):
    async def run():
        sampler = await start_engine(max_model_len=40)
        computed = count_computed(sampler)
        with pytest.raises(ValueError, match=message):
            await sampler.complete(bad)
        assert not computed
        assert len((await sampler.complete(request([1] * 30, 10))).token_ids) == 10

    asyncio.run(run())


def test_max_model_len_is_the_models_own_or_less(start_engine):
    async def run():
        assert (await start_engine()).max_model_len == 600
        assert (await start_engine(max_model_len=100)).max_model_len == 100
        assert (await start_engine(max_model_len=10_000)).max_model_len == 600

    asyncio.run(run())


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}, {"max_batch_size": 0}],
)
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LocalEngine(**options)


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch, context):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="`device: cuda` needs a GPU"):
        asyncio.run(LocalEngine(device="cuda").start(context()))
