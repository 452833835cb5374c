"""The suite of engines."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar
from unittest import SkipTest

import numpy as np

from agentgym_core import hf
from agentgym_core.protocols import Engine, Sampler, StartContext
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.testing.conformance.models import plain_logprobs, tiny_model
from agentgym_core.types import Completion, Request

T = TypeVar("T")


class EngineConformance(ComponentConformance):
    """What training relies on in every engine, tried on a tiny model with random weights.

    Example:
        class TestMine(EngineConformance):
            engine = Mine(device="cpu")
    """

    kind: ClassVar[str] = "engine"
    engine: Engine
    tolerance: ClassVar[float] = 1e-4
    """Between the engine's log-probabilities and those of a plain forward pass, in nats."""
    same_seed_same_tokens: ClassVar[bool] = True
    """Whether a request that is made again, alone, gives the same tokens."""

    def test_logprobs_are_those_of_the_sampled_ids(self) -> None:
        """An engine that decodes and encodes again, or shifts by one, is caught here."""
        policy: Any = hf.load_causal_lm(tiny_model())
        requests = [_request(n, temperature=t) for n in range(4) for t in (1.0, 0.7)]
        for request, done in zip(requests, self._complete(*requests), strict=True):
            self._assert_scored(policy, request, done)

    def test_ends_at_a_stop_id_or_at_max_tokens(self) -> None:
        """The stop id that was sampled is part of the completion."""
        free = self._complete(_request(1, max_tokens=8))[0].token_ids
        stop = free[3]
        cut = self._complete(_request(1, max_tokens=8, stop_ids=frozenset({stop})))[0]
        for request, done in (
            (_request(1, max_tokens=1), self._complete(_request(1, max_tokens=1))[0]),
            (_request(1, max_tokens=8, stop_ids=frozenset({stop})), cut),
        ):
            ids = done.token_ids
            stops = [place for place, name in enumerate(ids) if name in request.stop_ids]
            assert len(ids) <= request.max_tokens, (
                f"{len(ids)} tokens, at most {request.max_tokens}"
            )
            assert stops in ([], [len(ids) - 1]), f"{ids} goes on after a stop id"
            reason = "stop" if stops else "length"
            assert done.finish_reason == reason, f"{done.finish_reason!r}, expected {reason!r}"

    def test_requests_do_not_see_each_other(self) -> None:
        """Greedy replies are the same alone and in a crowd."""
        requests = [_request(n, temperature=0.0) for n in range(6)]
        together = self._complete(*requests)
        for request, done in zip(requests, together, strict=True):
            (alone,) = self._complete(request)
            assert done.token_ids == alone.token_ids, (
                f"request {request.key} gives other tokens beside others: mix no caches or masks"
            )

    def test_the_seed_decides(self) -> None:
        """An episode that is played anew draws the same tokens."""
        if not self.same_seed_same_tokens:
            raise SkipTest("same_seed_same_tokens is off")
        first, again = (self._complete(_request(2))[0] for _ in range(2))
        assert first.token_ids == again.token_ids, "the same request gives other tokens"
        seeds = {self._complete(_request(2, seed=seed))[0].token_ids for seed in range(5)}
        assert len(seeds) > 1, "every seed gives the same tokens"

    def test_load_changes_the_policy(self) -> None:
        """Weights that stay, and caches of the old ones, are caught here."""
        other: Any = hf.load_causal_lm(tiny_model(seed=2))
        first = _request(1)

        async def play(sampler: Sampler) -> tuple[Completion, Request, Completion]:
            before = await sampler.complete(first)
            await sampler.load([(n, p.detach()) for n, p in other.named_parameters()], 7)
            ids = (*first.token_ids, *before.token_ids, 9, 8)
            second = _request(1, token_ids=ids)
            return before, second, await sampler.complete(second)

        before, second, after = self._run(play)
        assert before.policy_version == 0, f"version {before.policy_version} before any load"
        assert after.policy_version == 7, f"version {after.policy_version} after load(…, 7)"
        self._assert_scored(other, second, after)

    def test_cancelling_is_safe(self) -> None:
        """The others go on, and so does the engine."""

        async def play(sampler: Sampler) -> tuple[Completion, Completion]:
            doomed = asyncio.create_task(sampler.complete(_request(1, max_tokens=60)))
            kept = asyncio.create_task(sampler.complete(_request(2, temperature=0.0)))
            await asyncio.sleep(0.01)
            doomed.cancel()
            await asyncio.wait([doomed])
            sampler.release("1")
            return await kept, await sampler.complete(_request(1, temperature=0.0))

        expected = self._complete(_request(2, temperature=0.0), _request(1, temperature=0.0))
        for done, plain in zip(self._run(play), expected, strict=True):
            assert done.token_ids == plain.token_ids, "cancelling one request changes another"

    def _assert_scored(self, policy: Any, request: Request, done: Completion) -> None:
        ids = done.token_ids
        size = policy.config.vocab_size
        assert all(0 <= token < size for token in ids), f"{ids} are not ids of the vocabulary"
        assert len(done.logprobs) == len(ids), f"{len(done.logprobs)} logprobs for {len(ids)} ids"
        assert all(value <= 0 for value in done.logprobs), f"logprobs above 0: {done.logprobs}"
        plain = plain_logprobs(policy, (*request.token_ids, *ids), request.temperature or 1.0)
        gap = np.abs(plain[len(request.token_ids) :] - np.array(done.logprobs)).max(initial=0.0)
        assert gap <= self.tolerance, (
            f"log-probabilities are {gap:.3g} nats from a plain forward pass of these ids: return "
            "the ids that were sampled, score them at the temperature, and forget old weights"
        )

    def _complete(self, *requests: Request) -> list[Completion]:
        async def play(sampler: Sampler) -> list[Completion]:
            done = await asyncio.gather(*map(sampler.complete, requests))
            for request in requests:
                sampler.release(request.key)
            return list(done)

        return self._run(play)

    def _run(self, play: Callable[[Sampler], Awaitable[T]]) -> T:
        async def run() -> T:
            context = StartContext(model=tiny_model(), seed=0, num_steps=4)
            sampler = await self.engine.start(context)
            try:
                return await play(sampler)
            finally:
                await sampler.close()

        return asyncio.run(run())


def _request(number: int, **changes: Any) -> Request:
    draw = np.random.default_rng(number)
    fields: dict[str, Any] = {
        "token_ids": tuple(draw.integers(0, 40, size=3 + 2 * number).tolist()),
        "max_tokens": 6,
        "stop_ids": frozenset[int](),
        "seed": number,
        "key": f"{number}",
    }
    return Request(**(fields | changes))
