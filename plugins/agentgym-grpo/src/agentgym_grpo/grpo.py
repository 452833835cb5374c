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
from attrs.validators import gt, le

from agentgym_core.losses import clipped_surrogate
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

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The module's first term, token by token; `OnPolicy.objective` adds the KL."""
        return clipped_surrogate(
            tokens.logprobs_NT,
            tokens.old_logprobs_NT,
            tokens.advantages_NT,
            tokens.mask_NT,
            low=self.clip_low,
            high=self.clip_high,
        )
