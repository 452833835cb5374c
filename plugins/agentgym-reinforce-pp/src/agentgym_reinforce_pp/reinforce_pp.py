"""REINFORCE++ (Hu et al. 2025, arXiv 2501.03262).

    loss = mean over trained tokens of  -min(r A, clip(r, 1 - low, 1 + high) A)

r is pi(token) / pi_old(token). What differs from PPO is A: there is no critic, the KL to the
reference is a cost of each token, and A is normalised over the whole batch
(`agentgym_reinforce_pp.normalised`). Departures from the paper:

- No KL by default, so no reference model is held: `kl_coef` above 0 charges it in the reward.
- Rewards are those of turns, where they were earned, and not one at the end.

The paper's variant with a baseline is `advantage: reinforce-pp-baseline` with `kl_estimator: k2`, a
term of the loss.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from attrs.validators import gt, le

from agentgym_core.losses import clipped_surrogate
from agentgym_core.on_policy import OnPolicy
from agentgym_core.types import TokenTensors


@attrs.frozen(kw_only=True)
class ReinforcePP(OnPolicy):
    """PPO's clipped surrogate without a critic."""

    default_advantage: ClassVar[str | None] = "reinforce-pp"

    kl_estimator: str = "k1"
    """A cost in the reward of each token. `k2`, `k3` and `k3-plain` make it a term of the loss."""
    clip_low: float = attrs.field(default=0.2, validator=[gt(0), le(1)])
    """The ratio may fall to 1 - clip_low."""
    clip_high: float = attrs.field(default=0.2, validator=gt(0))
    """The ratio may rise to 1 + clip_high."""

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The module's term, token by token; `OnPolicy.objective` adds a KL that is in the loss."""
        return clipped_surrogate(
            tokens.logprobs_NT,
            tokens.old_logprobs_NT,
            tokens.advantages_NT,
            tokens.mask_NT,
            low=self.clip_low,
            high=self.clip_high,
        )
