"""The suites of engines and backends find the faults that they are there for."""

import asyncio
import itertools

import attrs
import numpy as np
import pytest
import torch

from agentgym_core.testing import BackendConformance, EngineConformance
from agentgym_torch.backend import TorchBackend
from agentgym_torch.engine import LocalEngine

COUNTER = itertools.count()


class Wrapped:
    """Everything is the inner object's, but for what a subclass says."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Reencodes(Wrapped):
    """Gives other ids than it sampled, as decoding and encoding again may."""

    async def complete(self, request):
        done = await self.inner.complete(request)
        return attrs.evolve(done, token_ids=(done.token_ids[0] ^ 1, *done.token_ids[1:]))


class Stale(Wrapped):
    """Says that it has new weights, and samples from the old ones."""

    version = 0

    async def complete(self, request):
        return attrs.evolve(await self.inner.complete(request), policy_version=self.version)

    async def load(self, weights, version):
        self.version = version


class RunsOn(Wrapped):
    async def complete(self, request):
        done = await self.inner.complete(attrs.evolve(request, stop_ids=frozenset()))
        return attrs.evolve(done, finish_reason="length")


class IgnoresTheTemperature(Wrapped):
    async def complete(self, request):
        hot = request.temperature and 1.0
        return await self.inner.complete(attrs.evolve(request, temperature=hot))


class SeesTheCrowd(Wrapped):
    """What is sampled depends on how many others are."""

    waiting = 0

    async def complete(self, request):
        self.waiting += 1
        await asyncio.sleep(0)
        last = (request.token_ids[-1] + self.waiting) % 40
        try:
            return await self.inner.complete(
                attrs.evolve(request, token_ids=(*request.token_ids[:-1], last))
            )
        finally:
            self.waiting -= 1


class OneSeedForAll(Wrapped):
    async def complete(self, request):
        return await self.inner.complete(attrs.evolve(request, seed=1))


class AnotherSeedEachTime(Wrapped):
    async def complete(self, request):
        seed = next(COUNTER)
        return await self.inner.complete(attrs.evolve(request, seed=seed))


class BreaksWhenCancelled(Wrapped):
    """One cancelled request changes what comes after it."""

    shift = 0

    async def complete(self, request):
        try:
            done = await self.inner.complete(request)
        except asyncio.CancelledError:
            self.shift = 1
            raise
        return attrs.evolve(done, token_ids=tuple(t ^ self.shift for t in done.token_ids))


class Unmoved(Wrapped):
    def update(self, batch, loss):
        return {"loss": 0.0, "grad_norm": 0.0}


class DividesByTheMicroBatch(Wrapped):
    def update(self, batch, loss):
        def divided(tokens):
            loss_NT, metrics = loss(tokens)
            return loss_NT / tokens.mask_NT.sum(), metrics

        return self.inner.update(batch, divided)


class ForgetsItsMomentum(Wrapped):
    def load(self, folder):
        self.inner.load(folder)
        self.inner._learners[0].optimizer.state.clear()


class LearnsFromNaN(Wrapped):
    def update(self, batch, loss):
        try:
            return self.inner.update(batch, loss)
        except FloatingPointError:
            with torch.no_grad():
                next(iter(self.inner.weights()))[1].add_(1.0)
            raise


class ScoresShifted(Wrapped):
    def score(self, sequences, needs):
        scores = self.inner.score(sequences, needs)
        return attrs.evolve(scores, logprobs=tuple(row[::-1] for row in scores.logprobs))


class LearnsMaskedTokens(Wrapped):
    def update(self, batch, loss):
        def unmasked(row):
            everything = np.arange(len(row)) > 0
            return attrs.evolve(row, mask=everything, weights=everything / 60)

        minibatches = (
            attrs.evolve(part, rows=tuple(map(unmasked, part.rows))) for part in batch.minibatches
        )
        return self.inner.update(attrs.evolve(batch, minibatches=tuple(minibatches)), loss)


class ExportsNoConfig(Wrapped):
    def export(self, folder):
        self.inner.export(folder)
        (folder / "config.json").unlink()


class ExportsNoTokenizer(Wrapped):
    def export(self, folder):
        self.inner.export(folder)
        for file in folder.glob("tokenizer*"):
            file.unlink()


class ExportsOldWeights(Wrapped):
    def update(self, batch, loss):
        self.before = [(name, tensor.clone()) for name, tensor in self.inner.weights()]
        return self.inner.update(batch, loss)

    def export(self, folder):
        after = [(name, tensor.clone()) for name, tensor in self.inner.weights()]
        self.put(self.before)
        self.inner.export(folder)
        self.put(after)

    def put(self, weights):
        with torch.no_grad():
            for (_, tensor), (_, value) in zip(self.inner.weights(), weights, strict=True):
                tensor.copy_(value)


class ValuesOfTheNextState(Wrapped):
    """What follows the token, which gives the token away."""

    def score(self, sequences, needs):
        scores = self.inner.score(sequences, needs)
        if scores.values is None:
            return scores
        longer = [attrs.evolve(s, token_ids=np.append(s.token_ids[1:], 1)) for s in sequences]
        return attrs.evolve(scores, values=self.inner.score(longer, needs).values)


class SeesAFinalValueAlways(Wrapped):
    def score(self, sequences, needs):
        cut = [attrs.evolve(s, truncated=True) for s in sequences]
        return self.inner.score(cut, needs)


class ScoresOldValues(Wrapped):
    """Those of the first call."""

    first = None

    def score(self, sequences, needs):
        scores = self.inner.score(sequences, needs)
        self.first = self.first or scores.values
        return attrs.evolve(scores, values=self.first)


class ScalesTheValues(Wrapped):
    def score(self, sequences, needs):
        scores = self.inner.score(sequences, needs)
        return attrs.evolve(scores, values=tuple(2 * values for values in scores.values))


class MovesThePolicyToo(Wrapped):
    def update(self, batch, loss):
        return self.inner.update(attrs.evolve(batch, critic_only=False), loss)


class LeavesTheCritic(Wrapped):
    def update(self, batch, loss):
        return {} if batch.critic_only else self.inner.update(batch, loss)


class KeepsTheFirstReference(Wrapped):
    def refresh_reference(self):
        pass


class RefersToItself(Wrapped):
    """The reference is the policy's very weights."""

    def score(self, sequences, needs):
        scores = self.inner.score(sequences, needs)
        return attrs.evolve(scores, reference_logprobs=scores.logprobs)


class RefersToItselfOnceRefreshed(RefersToItself):
    refreshed = False

    def refresh_reference(self):
        self.refreshed = True

    def score(self, sequences, needs):
        scored = super() if self.refreshed else self.inner
        return scored.score(sequences, needs)


class ForgetsTheReference(Wrapped):
    def save(self, folder):
        self.inner.save(folder)
        (folder / "reference.safetensors").unlink(missing_ok=True)


@attrs.frozen(kw_only=True)
class FaultyEngine(LocalEngine):
    fault: type

    async def start(self, context):
        return self.fault(await super().start(context))


@attrs.frozen(kw_only=True)
class FaultyBackend(TorchBackend):
    fault: type

    def start(self, context):
        return self.fault(super().start(context))


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (Reencodes, "test_logprobs_are_those_of_the_sampled_ids"),
        (IgnoresTheTemperature, "test_logprobs_are_those_of_the_sampled_ids"),
        (Stale, "test_load_changes_the_policy"),
        (SeesTheCrowd, "test_requests_do_not_see_each_other"),
        (OneSeedForAll, "test_the_seed_decides"),
        (AnotherSeedEachTime, "test_the_seed_decides"),
        (BreaksWhenCancelled, "test_cancelling_is_safe"),
        (RunsOn, "test_ends_at_a_stop_id_or_at_max_tokens"),
    ],
)
def test_an_engine_s_fault_is_found(fault, check):
    class Suite(EngineConformance):
        engine = FaultyEngine(device="cpu", fault=fault)

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (Unmoved, "test_an_update_moves_the_weights"),
        (DividesByTheMicroBatch, "test_micro_batches_do_not_matter"),
        (ForgetsItsMomentum, "test_goes_on_from_what_it_saved"),
        (LearnsFromNaN, "test_a_loss_that_is_not_finite_leaves_the_weights"),
        (LearnsMaskedTokens, "test_masked_tokens_do_not_matter"),
        (ExportsNoConfig, "test_exports_what_transformers_loads"),
        (ExportsNoTokenizer, "test_exports_what_transformers_loads"),
        (ExportsOldWeights, "test_exports_what_transformers_loads"),
        (ScoresShifted, "test_scores_are_those_of_a_plain_forward_pass"),
        (ValuesOfTheNextState, "test_values_are_of_the_state_before_the_token"),
        (SeesAFinalValueAlways, "test_values_are_of_the_state_before_the_token"),
        (ScoresOldValues, "test_values_are_those_before_the_update"),
        (ScalesTheValues, "test_values_are_those_before_the_update"),
        (MovesThePolicyToo, "test_a_step_for_the_critic_only_leaves_the_policy"),
        (LeavesTheCritic, "test_a_step_for_the_critic_only_leaves_the_policy"),
        (KeepsTheFirstReference, "test_a_refreshed_reference_is_the_policy"),
        (RefersToItself, "test_a_refreshed_reference_is_the_policy"),
        (RefersToItselfOnceRefreshed, "test_a_refreshed_reference_is_the_policy"),
        (ForgetsTheReference, "test_a_refreshed_reference_is_the_policy"),
    ],
)
def test_a_backend_s_fault_is_found(fault, check):
    class Suite(BackendConformance):
        backend = FaultyBackend(device="cpu", learning_rate=0.01, fault=fault)
        smaller_micro_batches = FaultyBackend(
            device="cpu", learning_rate=0.01, fault=fault, tokens_per_micro_batch=32
        )

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()
