"""The suite of algorithms."""

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import SkipTest

import numpy as np

from agentgym_core.on_policy import OnPolicy
from agentgym_core.protocols import Algorithm, State, StepReport
from agentgym_core.testing.backend import RecordingTrainer
from agentgym_core.testing.conformance.advantage import KNOWN_NEEDS
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.testing.conformance.reward import make_episodes
from agentgym_core.types import Advantages, Batch, Group, Scores, TokenSequence, TokenTensors


class AlgorithmConformance(ComponentConformance):
    """What training relies on in every algorithm.

    Example:
        class TestMine(AlgorithmConformance):
            algorithm = Mine(clip=0.1)
    """

    kind: ClassVar[str] = "algorithm"
    algorithm: Algorithm

    def test_needs_are_known(self) -> None:
        """The trainer computes only what it knows."""
        unknown = set(self.algorithm.needs) - KNOWN_NEEDS
        assert not unknown, f"needs {sorted(unknown)}: choose among {sorted(KNOWN_NEEDS)}"

    def test_loss_has_a_value_for_each_token(self) -> None:
        """The backend weighs and sums them."""
        tokens = self._tokens(4)
        loss_NT, metrics = self._loss(tokens)
        shape = tokens.mask_NT.shape
        assert loss_NT.shape == shape, (
            f"loss of shape {tuple(loss_NT.shape)}, expected {tuple(shape)}: do not sum or average"
        )
        for name, metric in metrics.items():
            assert metric.shape == shape, f"metric {name} has shape {tuple(metric.shape)}"

    def test_masked_tokens_have_no_gradient(self) -> None:
        """The policy did not sample them."""
        tokens = self._tokens(4)
        gradient = self._gradient(tokens)
        assert not gradient[~tokens.mask_NT].any(), (
            "the loss of a trained token depends on one that is masked: multiply by mask_NT"
        )

    def test_gradient_does_not_depend_on_the_micro_batch(self) -> None:
        """Rows are cut into micro-batches as memory allows."""
        whole = self._gradient(self._tokens(4))
        for row in range(4):
            alone = self._gradient(self._tokens(4, rows=slice(row, row + 1)))
            assert bool(((whole[row] - alone[0]).abs() < 1e-9).all()), (
                f"row {row} has another gradient alone than in a batch: take no mean or norm over "
                "the micro-batch in `loss`"
            )

    def test_loss_is_finite_on_extreme_ratios(self) -> None:
        """Tokens become very unlikely; one such must not end a run."""
        for distance in (-60.0, 60.0):
            tokens = self._tokens(4, distance=distance)
            loss_NT, _ = self._loss(tokens)
            gradient = self._gradient(tokens)
            both = bool(loss_NT[tokens.mask_NT].isfinite().all() and gradient.isfinite().all())
            assert both, (
                f"the loss or its gradient is not finite where log-probabilities moved by "
                f"{distance}: clamp the log-ratio before exp"
            )

    def test_a_step_learns_and_publishes(self) -> None:
        """The engine must sample from the new policy, under the number of the next step."""
        run, report = self._step(3)
        assert report.step == 3, f"train_step(run, 3) reports step {report.step}"
        assert run.published == [4], f"train_step(run, 3) published {run.published}, expected [4]"
        assert run.trainer.batches, "train_step gave the trainer nothing to learn from"
        assert {batch.step for batch in run.trainer.batches} == {3}

    def test_steps_leave_nothing_behind(self) -> None:
        """A run that is resumed at a step equals one that was not stopped."""
        resumed, _ = self._step(2)
        for step in (0, 1):
            self._step(step)
        uninterrupted, _ = self._step(2)
        left, right = (_numbers(run.trainer.batches) for run in (resumed, uninterrupted))
        same = len(left) == len(right) and all(map(np.array_equal, left, right))
        assert same, "step 2 learns from another batch after steps 0 and 1: keep no state in it"

    def _loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        loss: Any = getattr(self.algorithm, "objective", getattr(self.algorithm, "loss", None))
        if loss is None:
            raise SkipTest("it has no loss of its own")
        return loss(tokens)

    def _gradient(self, tokens: TokenTensors) -> Any:
        loss_NT, _ = self._loss(tokens)
        (loss_NT * tokens.mask_NT).sum().backward()
        return tokens.logprobs_NT.grad

    def _tokens(
        self, num_rows: int, rows: slice = slice(None), distance: float = 0.2
    ) -> TokenTensors:
        """Random rows of which some tokens are masked, in float64."""
        if importlib.util.find_spec("torch") is None:
            raise SkipTest("torch is not installed: the loss cannot be tried")
        import torch

        draw = np.random.default_rng(8)
        shape = (num_rows, 6)

        def tensor(numbers: Any) -> Any:
            return torch.tensor(numbers[rows])

        old = -draw.uniform(0.1, 3.0, shape)
        mask = draw.random(shape) < 0.6
        mask[:, 0], mask[:, 1] = False, True
        needs = self.algorithm.needs
        with_values = "values" in needs
        now = tensor(old + distance * draw.uniform(0.5, 1.0, shape)).requires_grad_(True)
        return TokenTensors(
            logprobs_NT=now,
            mask_NT=tensor(mask),
            advantages_NT=tensor(mask * draw.normal(size=shape)),
            old_logprobs_NT=tensor(old),
            sampled_logprobs_NT=tensor(old),
            reference_logprobs_NT=tensor(old - 0.1) if "reference_logprobs" in needs else None,
            values_NT=tensor(draw.normal(size=shape)) if with_values else None,
            old_values_NT=tensor(draw.normal(size=shape)) if with_values else None,
            returns_NT=tensor(draw.normal(size=shape)) if with_values else None,
        )

    def _step(self, step: int) -> tuple[Any, StepReport]:
        """One step over recorded episodes."""
        if not isinstance(self.algorithm, OnPolicy) and self.algorithm.default_advantage is None:
            raise SkipTest("it does not learn from played groups")
        run = _RecordedRun(self.algorithm.initial_state())
        return run, asyncio.run(self.algorithm.train_step(run, step))


class _RecordedRun:
    """As much of a run as an on-policy step uses."""

    def __init__(self, algorithm_state: State) -> None:
        self.algorithm_state = algorithm_state
        self.trainer = RecordingTrainer()
        self.published: list[int] = []
        self.player = SimpleNamespace(
            groups=self._groups, training=SimpleNamespace(tasks_per_step=1, group_size=4)
        )
        self.seed = 1

    async def _groups(
        self, step: int, *, refill: int = 0, num_tasks: int | None = None
    ) -> tuple[Group, ...]:
        episodes = tuple(make_episodes())
        return (Group(task=episodes[0].task, environment="world", episodes=episodes),)

    def beating(self, loss: Any) -> Any:
        """See `agentgym_core.run.Run`."""
        return loss

    async def publish(self, version: int) -> None:
        self.published.append(version)

    @property
    def advantage(self) -> "_RewardToGo":
        return _RewardToGo()


class _RewardToGo:
    """Credit for any batch, with returns for algorithms that have a critic."""

    needs = frozenset[str]()

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        values = tuple(np.where(s.mask, s.rewards.sum() - 0.5, 0.0) for s in sequences)
        return Advantages(values=values, returns=values if scores.values else None)


def _numbers(batches: Sequence[Batch]) -> list[Any]:
    return [
        value
        for batch in batches
        for minibatch in batch.minibatches
        for row in minibatch.rows
        for value in (row.token_ids, row.weights, row.advantages, row.old_logprobs)
    ]
