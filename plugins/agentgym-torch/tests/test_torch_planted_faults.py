"""The suites of engines and backends find the faults that they are there for."""

import attrs
import pytest
import torch

from agentgym_core.testing import BackendConformance, EngineConformance
from agentgym_torch.backend import TorchBackend
from agentgym_torch.engine import LocalEngine


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
        self.inner._optimizer.state.clear()


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
        (ScoresShifted, "test_scores_are_those_of_a_plain_forward_pass"),
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
