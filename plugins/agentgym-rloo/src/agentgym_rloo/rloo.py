"""RLOO, REINFORCE Leave-One-Out (Ahmadian et al. 2024, arXiv 2402.14740).

    loss = mean over trained tokens of  -A log pi(token)

A is the episode's reward less the mean of the other attempts at its task
(`agentgym_rloo.leave_one_out`), and the same for all tokens of the episode: the episode is one
action, whose log-probability is the sum of its tokens'. Departures from the paper:

- Its sum over an episode's tokens is a mean over those of the minibatch. `aggregation: constant` is
  the paper's, but for a constant factor: each token weighs the same in every step.
- No KL by default. With `kl_coef` above 0 it is a cost in the reward, as in the paper.

The loss is right for episodes of the policy that is updated. Where a step makes several updates of
its episodes, `clip` puts PPO's clipped surrogate of each token in its place. (TRL's RLOO clips the
ratio of the whole episode, a product over its tokens, which in long episodes is nearly always out
of any bounds.)
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from attrs.validators import gt, le, optional

from agentgym_core.losses import clipped_surrogate, policy_gradient
from agentgym_core.on_policy import OnPolicy
from agentgym_core.types import TokenTensors


@attrs.frozen(kw_only=True)
class RLOO(OnPolicy):
    """REINFORCE whose baseline is what the other attempts earned."""

    default_advantage: ClassVar[str | None] = "leave-one-out"

    kl_estimator: str = "k1"
    """A cost in the reward. `k2`, `k3` and `k3-plain` make it a term of the loss."""
    clip: float | None = attrs.field(default=None, validator=optional([gt(0.0), le(1.0)]))
    """The ratio to the policy before the step stays between 1 - clip and 1 + clip. Null for
    REINFORCE itself, in steps of one update."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.clip is None and self.num_minibatches * self.num_epochs > 1:
            raise ValueError(
                f"num_minibatches {self.num_minibatches} and num_epochs {self.num_epochs} update "
                "the policy several times with the same episodes, for which REINFORCE is wrong "
                "from the second time on: give `clip`, such as 0.2, or leave both at 1"
            )

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The module's term, token by token; `OnPolicy.objective` adds a KL that is in the loss."""
        if self.clip is None:
            return policy_gradient(tokens.logprobs_NT, tokens.advantages_NT, tokens.mask_NT), {}
        return clipped_surrogate(
            tokens.logprobs_NT,
            tokens.old_logprobs_NT,
            tokens.advantages_NT,
            tokens.mask_NT,
            low=self.clip,
            high=self.clip,
        )
