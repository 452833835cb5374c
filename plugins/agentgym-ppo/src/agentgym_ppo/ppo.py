"""PPO, Proximal Policy Optimization (Schulman et al., arXiv 1707.06347), with a critic.

    loss = mean over trained tokens of
           -min(r A, clip(r, 1 - low, 1 + high) A)                                    (equation 7)
           + value_coef max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2     (equation 9)

r is pi(token) / pi_old(token), V the critic's value of the state in which the token was sampled,
V_old that of before the step, and R its target (`agentgym_ppo.gae`). Departures from the paper:

- No entropy bonus.
- The value loss is clipped as in the authors' code, of which the paper does not speak (arXiv
  2005.12729); `value_clip: null` leaves that out.
- In its first `critic_warmup` steps the critic learns alone: before, its values say nothing.
- The critic is a model of its own unless the backend's `critic: {shared: true}` says otherwise:
  then `value_coef` weighs both losses against each other; for a critic of its own it only scales a
  gradient.
"""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from attrs.validators import ge, gt, le, optional

from agentgym_core.losses import clipped_surrogate, clipped_value_loss
from agentgym_core.on_policy import OnPolicy
from agentgym_core.types import TokenTensors

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class PPO(OnPolicy):
    """The clipped surrogate and a critic that learns beside it."""

    default_advantage: ClassVar[str | None] = "gae"

    clip_low: float = attrs.field(default=0.2, validator=[gt(0), le(1)])
    """The ratio may fall to 1 - clip_low."""
    clip_high: float = attrs.field(default=0.2, validator=gt(0))
    """The ratio may rise to 1 + clip_high."""
    value_coef: float = attrs.field(default=0.5, validator=gt(0))
    """Weight of the value loss."""
    value_clip: float | None = attrs.field(default=0.2, validator=optional(gt(0.0)))
    """How far a value may move in a step, in units of reward; null lets it."""
    critic_warmup: int = attrs.field(default=0, validator=ge(0))
    """Training steps at the start in which the critic alone learns."""

    @property
    def needs(self) -> frozenset[str]:
        """A critic."""
        return super().needs | {"values"}

    async def prepare(self, run: Any) -> None:
        """Warn where the policy never learns."""
        num_steps = run.config.training.num_steps
        if num_steps <= self.critic_warmup:
            log.warning(
                "critic_warmup is %d and num_steps %d: the critic alone learns, and the policy "
                "stays as it is",
                self.critic_warmup,
                num_steps,
            )

    def critic_only(self, step: int) -> bool:
        """Critic warm-up."""
        return step < self.critic_warmup

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The module's equation, token by token."""
        policy_NT, metrics = clipped_surrogate(
            tokens.logprobs_NT,
            tokens.old_logprobs_NT,
            tokens.advantages_NT,
            tokens.mask_NT,
            low=self.clip_low,
            high=self.clip_high,
        )
        value_NT, value_metrics = clipped_value_loss(
            tokens.values_NT,
            tokens.old_values_NT,
            tokens.returns_NT,
            tokens.mask_NT,
            clip=self.value_clip,
        )
        return policy_NT + self.value_coef * value_NT, {**metrics, **value_metrics}
