"""A run in miniature, in which an algorithm must learn: needs torch, and takes a second."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from agentgym_core.on_policy import OnPolicy
from agentgym_core.protocols import AdvantageEstimator, StepReport
from agentgym_core.types import (
    Batch,
    Ending,
    Episode,
    FloatArray,
    Group,
    Scores,
    Task,
    TokenSequence,
    TokenTensors,
    Turn,
)

NUM_ARMS = 4
GOOD_ARM = 2


class Bandit:
    """Episodes of one token out of four, of which token 2 is worth 1.

    The policy is a table of four logits; it is scored, updated and sampled right here. The
    reference policy draws all tokens equally often.

    Example:
        assert Bandit(GroupRelative()).train(GRPO(), num_steps=25)[GOOD_ARM] > 0.95

    Args:
        advantage: the estimator; it may not ask for values.
        learning_rate: of plain gradient descent.
        tasks_per_step: each played eight times.
    """

    seed = 0
    group_size = 8

    def __init__(
        self, advantage: AdvantageEstimator, learning_rate: float = 2.0, tasks_per_step: int = 4
    ) -> None:
        import torch

        self.torch: Any = torch
        self.logits = torch.zeros(NUM_ARMS, dtype=torch.float64, requires_grad=True)
        self.learning_rate = learning_rate
        self.advantage = advantage
        self.training = SimpleNamespace(tasks_per_step=tasks_per_step, group_size=self.group_size)
        self.algorithm_state: Any = None
        self.player = self.trainer = self
        self.version = 0

    @property
    def logprobs(self) -> Any:
        """Of each token, with a gradient."""
        return self.logits.log_softmax(-1)

    def train(self, algorithm: OnPolicy, num_steps: int) -> FloatArray:
        """Returns the chance of each token after so many steps."""
        self.algorithm_state = algorithm.initial_state()
        for step in range(num_steps):
            report: StepReport = asyncio.run(algorithm.train_step(self, step))
            self.algorithm_state = algorithm.next_state(self.algorithm_state, report)
        return self.logprobs.exp().detach().numpy()

    async def groups(
        self, step: int, *, refill: int = 0, num_tasks: int | None = None
    ) -> tuple[Group, ...]:
        """As `agentgym_core.player.Player.groups`."""
        chance = self.logprobs.exp().detach().numpy()
        draw = np.random.default_rng([step, refill])
        return tuple(
            self._group(draw.choice(NUM_ARMS, size=self.group_size, p=chance / chance.sum()))
            for _ in range(num_tasks or self.training.tasks_per_step)
        )

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """As `agentgym_core.protocols.Trainer.score`."""
        del needs
        logprobs = self.logprobs.detach().numpy()
        reference = np.full(NUM_ARMS, -np.log(NUM_ARMS))
        return Scores(
            logprobs=tuple(logprobs[s.token_ids] * s.mask for s in sequences),
            reference_logprobs=tuple(reference[s.token_ids] * s.mask for s in sequences),
        )

    def update(self, batch: Batch, loss: Any) -> dict[str, float]:
        """As `agentgym_core.protocols.Trainer.update`."""
        torch = self.torch
        for minibatch in batch.minibatches:

            def stacked(name: str, rows: Any = minibatch.rows) -> Any:
                return torch.from_numpy(np.stack([getattr(row, name) for row in rows]))

            tokens = TokenTensors(
                logprobs_NT=self.logprobs[stacked("token_ids")],
                mask_NT=stacked("mask"),
                advantages_NT=stacked("advantages"),
                old_logprobs_NT=stacked("old_logprobs"),
                sampled_logprobs_NT=stacked("sampled_logprobs"),
                reference_logprobs_NT=stacked("reference_logprobs"),
            )
            loss_NT, _ = loss(tokens)
            (gradient,) = torch.autograd.grad((stacked("weights") * loss_NT).sum(), self.logits)
            with torch.no_grad():
                self.logits -= self.learning_rate * gradient
        return {}

    def beating(self, loss: Any) -> Any:
        """As `agentgym_core.run.Run.beating`."""
        return loss

    async def publish(self, version: int) -> None:
        """As `agentgym_core.run.Run.publish`."""
        self.version = version

    def _group(self, tokens: Any) -> Group:
        task = Task(id="bandit_0")
        episodes = tuple(self._episode(task, place, int(t)) for place, t in enumerate(tokens))
        return Group(task=task, environment="bandit", episodes=episodes)

    def _episode(self, task: Task, sample: int, token: int) -> Episode:
        turn = Turn(
            sequence=0,
            prompt_ids=(0,),
            token_ids=(token,),
            logprobs=(self.logprobs[token].item(),),
            finish_reason="stop",
            policy_version=self.version,
            text="",
            reward=float(token == GOOD_ARM),
            rounds=1,
        )
        return Episode(
            task=task,
            environment="bandit",
            sample=sample,
            seed=0,
            max_rounds=1,
            turns=(turn,),
            messages=(),
            ending=Ending.DONE,
            success=token == GOOD_ARM,
        )
