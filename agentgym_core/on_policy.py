"""The training step that PPO, GRPO, RLOO and REINFORCE++ share. They write only `loss`."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import attrs
from attrs.validators import ge, gt, in_, optional

from agentgym_core.batching import (
    Aggregation,
    OldLogprobs,
    check_advantages,
    check_aggregation,
    make_batch,
)
from agentgym_core.contract import calling
from agentgym_core.importance import Correction, correction_weights
from agentgym_core.kl_rewards import kl_to_rewards, next_coefficient
from agentgym_core.losses import (  # pyright: ignore[reportUnknownVariableType]
    check_kl_estimator,  # pyright: ignore[reportUnknownVariableType]
    kl_to_reference,  # pyright: ignore[reportUnknownVariableType]
)
from agentgym_core.protocols import Algorithm, Engine, State, StepReport
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import refuse_idle
from agentgym_core.statistics import episode_metrics, sampling_gap
from agentgym_core.types import (
    Advantages,
    FloatArray,
    Group,
    Scores,
    TokenSequence,
    TokenTensors,
)


@attrs.frozen(kw_only=True)
class OnPolicy(Algorithm):
    """Learns from episodes that the current policy has just played."""

    aggregation: Aggregation = "token-mean"
    """How token losses become one loss: see `agentgym_core.batching.token_weights`."""
    aggregation_constant: float | None = None
    """Tokens. Needed by the aggregation `constant`, and only there."""
    num_minibatches: int = attrs.field(default=1, validator=ge(1))
    """Optimizer steps in each pass over the step's episodes."""
    num_epochs: int = attrs.field(default=1, validator=ge(1))
    """Passes over the step's episodes."""
    old_logprobs: OldLogprobs = attrs.field(default="scored", validator=in_(get_args(OldLogprobs)))
    """Denominator of the ratio: `scored` by the trainer before its first update (one more forward
    pass), or as `sampled` by the engine, which is right where the two agree to rounding."""
    kl_coef: float = attrs.field(default=0.0, validator=ge(0))
    """Weight of the KL to the reference policy. Above 0 the backend holds a reference."""
    kl_estimator: str = "k3"
    """`k2`, `k3` and `k3-plain` are a term of the loss: see `agentgym_core.losses.kl_to_reference`.
    `k1` is a cost in the reward: see `agentgym_core.kl_rewards`."""
    kl_target: float | None = attrs.field(default=None, validator=optional(gt(0.0)))
    """With `k1`: nats per episode that the coefficient then aims at, beginning with `kl_coef`."""
    reference_every: int = attrs.field(default=0, validator=ge(0))
    """Training steps after which the reference becomes the policy of that time, again and again; 0
    keeps the policy that the stage began with."""
    correction: Correction = attrs.field(default="none", validator=in_(get_args(Correction)))
    """Of the gap between engine and trainer: see `agentgym_core.importance`."""
    correction_cap: float = attrs.field(default=2.0, validator=gt(1.0))
    """Largest weight that a correction gives."""

    def __attrs_post_init__(self) -> None:
        check_aggregation(self.aggregation, self.aggregation_constant)
        check_kl_estimator(self.kl_estimator)
        if self.kl_target is not None and (self.kl_estimator != "k1" or not self.kl_coef):
            raise ValueError(
                "kl_target adapts the coefficient of a KL in the reward: it needs `kl_estimator: "
                "k1` and a `kl_coef` above 0 to begin with"
            )
        if not self.kl_coef:
            refuse_idle(self, ("kl_estimator", "reference_every"), "with kl_coef: 0")
        if self.correction == "none":
            refuse_idle(self, ("correction_cap",), "with correction: none")
        if self.reference_every == 1 and self.kl_estimator == "k1":
            raise ValueError(
                "reference_every is 1: a k1 that is charged for what was played would always be 0, "
                "since the reference is the policy that played. Set it to 2 or more"
            )
        if self.correction != "none" and self.old_logprobs == "sampled":
            raise ValueError(
                f"correction '{self.correction}' compares the trainer's logprobs with the "
                "engine's: it needs `old_logprobs: scored`"
            )

    @property
    def needs(self) -> frozenset[str]:
        """The trainer's logprobs, unless the engine's stand in for them; a reference for a KL."""
        scored = {"logprobs"} if self.old_logprobs == "scored" else set[str]()
        return frozenset(scored | ({"reference_logprobs"} if self.kl_coef > 0 else set()))

    def initial_state(self) -> State:
        """The coefficient of a KL in the reward, where it adapts."""
        return None if self.kl_target is None else {"kl_coef": self.kl_coef}

    def next_state(self, state: State, report: StepReport) -> State:
        """The coefficient after a step; one that learned nothing leaves it."""
        if self.kl_target is None or "kl_episode" not in report.metrics:
            return state
        kl = report.metrics["kl_episode"]
        return {"kl_coef": next_coefficient(state["kl_coef"], kl, self.kl_target)}

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
        """The algorithm's own term: see `agentgym_core.protocols.Loss`."""

    def objective(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """What the trainer minimises: `loss`, and the KL to the reference where it is a term."""
        loss_NT, metrics = self.loss(tokens)
        if self.kl_coef == 0 or self.kl_estimator == "k1":
            return loss_NT, metrics
        kl_NT = kl_to_reference(
            tokens.logprobs_NT,
            tokens.old_logprobs_NT,
            tokens.reference_logprobs_NT,
            tokens.mask_NT,
            estimator=self.kl_estimator,
        )
        return loss_NT + self.kl_coef * kl_NT, {**metrics, "kl": kl_NT.detach()}

    async def train_step(self, run: Any, step: int) -> StepReport:
        """Play, give credit, learn, publish."""
        groups = await self.play(run, step)  # this step's groups, at this step's horizon
        sequences = self.sequences(groups)
        advantages, metrics = self.learn(run, step, sequences)
        await run.publish(step + 1)  # the engine samples from the new policy
        return StepReport(
            step=step,
            metrics=episode_metrics(groups) | metrics,
            groups=groups,
            sequences=sequences,
            advantages=advantages,
        )

    async def play(self, run: Any, step: int) -> tuple[Group, ...]:
        """All groups of the step, whether it learns from them or not."""
        return await run.player.groups(step)

    def sequences(self, groups: Sequence[Group]) -> tuple[TokenSequence, ...]:
        """What is learned of them: all of it, unless an algorithm chooses."""
        return to_sequences(groups)

    def critic_only(self, step: int) -> bool:
        """Whether the step leaves the policy alone, so that a critic can learn first."""
        del step
        return False

    def learn(
        self, run: Any, step: int, sequences: Sequence[TokenSequence]
    ) -> tuple[Advantages | None, dict[str, float]]:
        """Give credit and update the weights, unless there is nothing to learn from.

        Returns:
            The advantages, None if no token was to be trained; and metrics, among which
            `update_skipped` is 1 if the weights were left alone.
        """
        if self.reference_every and step and step % self.reference_every == 0:
            run.trainer.refresh_reference()
        if not any(sequence.mask.any() for sequence in sequences):
            return None, {"update_skipped": 1.0}
        scores = run.trainer.score(sequences, self.needs | run.advantage.needs)
        charged, metrics = self._charged(run, sequences, scores)
        with calling(run.advantage, "advantages"):
            advantages = run.advantage(charged, scores)
            check_advantages(sequences, advantages)
        weighted, correction = self._weighted(sequences, scores, advantages)
        metrics |= sampling_gap(sequences, scores) | correction | dict(advantages.metrics)
        learned = self.learned(attrs.evolve(advantages, values=weighted))
        if not any(learned):
            return advantages, metrics | {"update_skipped": 1.0}
        batch = make_batch(
            step,
            sequences,
            attrs.evolve(advantages, values=weighted),
            scores,
            aggregation=self.aggregation,
            constant=self.aggregation_constant,
            num_minibatches=self.num_minibatches,
            num_epochs=self.num_epochs,
            seed=run.seed,
            old_logprobs=self.old_logprobs,
            learned=learned,
            critic_only=self.critic_only(step),
        )
        updated = run.trainer.update(batch, run.beating(self.objective))
        return advantages, metrics | dict(updated) | {"update_skipped": 0.0}

    def learned(self, advantages: Advantages) -> list[bool]:
        """Whether the loss of each sequence can have a gradient: from credit, values or reference.

        The others are spared the forward and backward pass. With none at all the step is skipped:
        it would still move the weights by the optimizer's momentum. An algorithm whose loss has
        terms of another kind says so here.
        """
        to_reference = "reference_logprobs" in self.needs and self.kl_estimator != "k1"
        other_terms = advantages.returns is not None or to_reference
        return [other_terms or bool(values.any()) for values in advantages.values]

    def _charged(
        self, run: Any, sequences: Sequence[TokenSequence], scores: Scores
    ) -> tuple[Sequence[TokenSequence], dict[str, float]]:
        """The sequences as the estimator gets them: where the KL is a reward, with it."""
        if self.kl_coef == 0 or self.kl_estimator != "k1":
            return sequences, {}
        own = scores.logprobs or [sequence.logprobs for sequence in sequences]
        assert scores.reference_logprobs is not None
        coef = self.kl_coef if self.kl_target is None else run.algorithm_state["kl_coef"]
        return kl_to_rewards(sequences, own, scores.reference_logprobs, coef)

    def _weighted(
        self, sequences: Sequence[TokenSequence], scores: Scores, advantages: Advantages
    ) -> tuple[tuple[FloatArray, ...], dict[str, float]]:
        """The advantages as the loss gets them: corrected for the gap to the engine."""
        weights, metrics = correction_weights(
            sequences, scores.logprobs, self.correction, self.correction_cap
        )
        pairs = zip(weights, advantages.values, strict=True)
        return tuple(weight * value for weight, value in pairs), metrics
