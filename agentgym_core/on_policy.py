"""The training step that PPO, GRPO, RLOO and REINFORCE++ share. They write only `loss`."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import attrs

from agentgym_core.batching import (
    Aggregation,
    OldLogprobs,
    check_advantages,
    check_aggregation,
    make_batch,
)
from agentgym_core.contract import calling
from agentgym_core.protocols import Algorithm, Engine, StepReport
from agentgym_core.sequences import to_sequences
from agentgym_core.statistics import episode_metrics, sampling_gap
from agentgym_core.types import Advantages, TokenSequence, TokenTensors


@attrs.frozen(kw_only=True)
class OnPolicy(Algorithm):
    """Learns from episodes that the current policy has just played."""

    aggregation: Aggregation = "token-mean"
    """How token losses become one loss: see `agentgym_core.batching.token_weights`."""
    aggregation_constant: float | None = None
    """Tokens. Needed by the aggregation `constant`, and only there."""
    num_minibatches: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """Optimizer steps in each pass over the step's episodes."""
    num_epochs: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """Passes over the step's episodes."""
    old_logprobs: OldLogprobs = attrs.field(
        default="scored", validator=attrs.validators.in_(get_args(OldLogprobs))
    )
    """Denominator of the ratio: `scored` by the trainer before its first update (one more forward
    pass), or as `sampled` by the engine, which is right where the two agree to rounding."""

    def __attrs_post_init__(self) -> None:
        check_aggregation(self.aggregation, self.aggregation_constant)

    @property
    def needs(self) -> frozenset[str]:
        """The trainer's logprobs, unless the engine's stand in for them."""
        return frozenset({"logprobs"} if self.old_logprobs == "scored" else ())

    def check(self, engine: Engine) -> None:
        """The episodes must be the policy's own: no greedy ones, none of its likeliest tokens."""
        if engine.temperature <= 0:
            raise ValueError(
                f"temperature is {engine.temperature:g}: training needs attempts that differ. "
                "Set it above 0, such as 1.0; greedy decoding is for `evaluation.temperatures`"
            )
        for key, full in (("top_p", 1.0), ("top_k", 0)):
            if getattr(engine, key) != full:
                raise ValueError(
                    f"{key} is {getattr(engine, key)}: training needs episodes of the policy "
                    f"itself, not of its likeliest tokens. Leave it at {full}; "
                    f"`evaluation.{key}` is free"
                )

    @abstractmethod
    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """See `agentgym_core.protocols.Loss`."""

    async def train_step(self, run: Any, step: int) -> StepReport:
        """Play, give credit, learn, publish."""
        groups = await run.player.groups(step)  # this step's groups, at this step's horizon
        sequences = to_sequences(groups)
        advantages, metrics = self.learn(run, step, sequences)
        await run.publish(step + 1)  # the engine samples from the new policy
        return StepReport(
            step=step,
            metrics=episode_metrics(groups) | metrics,
            groups=groups,
            sequences=sequences,
            advantages=advantages,
        )

    def learn(
        self, run: Any, step: int, sequences: Sequence[TokenSequence]
    ) -> tuple[Advantages | None, dict[str, float]]:
        """Give credit and update the weights, unless there is nothing to learn from.

        Returns:
            The advantages, None if no token was to be trained; and metrics, among which
            `update_skipped` is 1 if the weights were left alone.
        """
        if not any(sequence.mask.any() for sequence in sequences):
            return None, {"update_skipped": 1.0}
        scores = run.trainer.score(sequences, self.needs | run.advantage.needs)
        with calling(run.advantage, "advantages"):
            advantages = run.advantage(sequences, scores)
            check_advantages(sequences, advantages)
        metrics = sampling_gap(sequences, scores) | dict(advantages.metrics)
        learned = self.learned(advantages)
        if not any(learned):
            return advantages, metrics | {"update_skipped": 1.0}
        batch = make_batch(
            step,
            sequences,
            advantages,
            scores,
            aggregation=self.aggregation,
            constant=self.aggregation_constant,
            num_minibatches=self.num_minibatches,
            num_epochs=self.num_epochs,
            seed=run.seed,
            old_logprobs=self.old_logprobs,
            learned=learned,
        )
        updated = run.trainer.update(batch, run.beating(self.loss))
        return advantages, metrics | dict(updated) | {"update_skipped": 0.0}

    def learned(self, advantages: Advantages) -> list[bool]:
        """Whether the loss of each sequence can have a gradient: from credit, values or reference.

        The others are spared the forward and backward pass. With none at all the step is skipped:
        it would still move the weights by the optimizer's momentum. An algorithm whose loss has
        terms of another kind says so here.
        """
        other_terms = advantages.returns is not None or "reference_logprobs" in self.needs
        return [other_terms or bool(values.any()) for values in advantages.values]
