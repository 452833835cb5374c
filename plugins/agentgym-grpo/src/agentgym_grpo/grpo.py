"""GRPO, Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300, equation 3).

    loss = mean over trained tokens of  -min(r A, clip(r, 1 - low, 1 + high) A) + kl_coef KL

r is pi(token) / pi_old(token) and A the episode's reward relative to the other attempts at its
task (`agentgym_grpo.group_relative`). Departures from the paper, each of which a key undoes:

- The mean is over the tokens of the minibatch, as in DAPO (arXiv 2503.14476): the paper's mean
  over each episode first (`aggregation: episode-mean`) makes long failures cheap.
- No KL term by default (`kl_coef: 0.04` in the paper), so no reference model is held.
- The KL term is weighted by r, which makes its gradient that of the KL; the paper's is
  `kl_estimator: k3-plain`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from attrs.validators import ge, gt, le

from agentgym_core.losses import check_kl_estimator, clipped_surrogate, kl_to_reference
from agentgym_core.on_policy import OnPolicy
from agentgym_core.types import TokenTensors


@attrs.frozen(kw_only=True)
class GRPO(OnPolicy):
    """The clipped surrogate with an optional KL penalty; equal bounds are PPO's."""

    default_advantage: ClassVar[str | None] = "group-relative"

    clip_low: float = attrs.field(default=0.2, validator=[gt(0), le(1)])
    """The ratio may fall to 1 - clip_low."""
    clip_high: float = attrs.field(default=0.2, validator=gt(0))
    """The ratio may rise to 1 + clip_high. DAPO's "clip higher" is 0.28."""
    kl_coef: float = attrs.field(default=0.0, validator=ge(0))
    """Weight of the KL to the reference policy. Above 0 the backend holds a reference."""
    kl_estimator: str = "k3"
    """`k2`, `k3` or `k3-plain`: see `agentgym_core.losses.kl_to_reference`."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_kl_estimator(self.kl_estimator)

    @property
    def needs(self) -> frozenset[str]:
        """A reference policy, if there is a KL term."""
        return super().needs | ({"reference_logprobs"} if self.kl_coef > 0 else set())

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The module's equation, token by token."""
        now, old, mask = tokens.logprobs_NT, tokens.old_logprobs_NT, tokens.mask_NT
        loss_NT, metrics = clipped_surrogate(
            now, old, tokens.advantages_NT, mask, low=self.clip_low, high=self.clip_high
        )
        if self.kl_coef == 0:
            return loss_NT, metrics
        kl_NT = kl_to_reference(
            now, old, tokens.reference_logprobs_NT, mask, estimator=self.kl_estimator
        )
        return loss_NT + self.kl_coef * kl_NT, metrics | {"kl": kl_NT.detach()}
