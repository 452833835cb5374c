"""GRPO, Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300, equation 3).

    loss = mean over trained tokens of  -min(r A, clip(r, 1 - low, 1 + high) A) + kl_coef KL

r is pi(token) / pi_old(token) and A the episode's reward relative to the other attempts at its
task (`agentgym_grpo.group_relative`). Departures from the paper, each of which a key undoes:

- The mean is over the tokens of the minibatch, as in DAPO (arXiv 2503.14476): the paper's mean
  over each episode first (`aggregation: episode-mean`) makes long failures cheap.
- No KL term by default (`kl_coef: 0.04` in the paper), so no reference model is held.
- The KL term is weighted by r, which makes its gradient that of the KL; the paper's is
  `kl_estimator: k3-plain`.

What others made of it, off by default:

- `surrogate: gspo`, one ratio for a token sequence (GSPO, arXiv 2507.18071), and `cispo`, the ratio
  as a bounded weight (CISPO, arXiv 2506.13585): see `agentgym_core.losses`.
- `dual_clip`, a bound for negative A (arXiv 1912.09729).
- `overlong: mask` and `max_refills`, the over-long filtering and the dynamic sampling of DAPO
  (sections 3.4 and 3.2). Departure: a step is refilled a number of times, not until it is full.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import attrs
from attrs.validators import ge, gt, in_, le, optional

from agentgym_core import losses
from agentgym_core.on_policy import OnPolicy
from agentgym_core.protocols import StepReport
from agentgym_core.sequences import to_sequences
from agentgym_core.types import Group, TokenSequence, TokenTensors
from agentgym_grpo.selection import has_signal, without_overlong

Surrogate = Literal["clip", "gspo", "cispo"]
Overlong = Literal["keep", "mask"]


@attrs.frozen(kw_only=True)
class GRPO(OnPolicy):
    """The clipped surrogate with an optional KL penalty; equal bounds are PPO's."""

    default_advantage: ClassVar[str | None] = "group-relative"

    surrogate: Surrogate = attrs.field(default="clip", validator=in_(get_args(Surrogate)))
    """What is maximised: `clip` bounds the ratio of each token, `gspo` that of each token sequence,
    `cispo` the weight of each token's gradient."""
    clip_low: float = attrs.field(default=0.2, validator=[gt(0), le(1)])
    """The ratio may fall to 1 - clip_low. A sequence's moves far less than a token's: GSPO's bounds
    are 3e-4 and 4e-4. CISPO has no lower one, which is 1 here."""
    clip_high: float = attrs.field(default=0.2, validator=gt(0))
    """The ratio may rise to 1 + clip_high. DAPO's "clip higher" is 0.28."""
    dual_clip: float | None = attrs.field(default=None, validator=optional(gt(1.0)))
    """With a negative A the objective is not below dual_clip x A: 3 in the paper. Null for no such
    bound."""
    overlong: Overlong = attrs.field(default="keep", validator=in_(get_args(Overlong)))
    """`mask` learns nothing from an episode that ran out of tokens; it still counts among the
    attempts at its task."""
    max_refills: int = attrs.field(default=0, validator=ge(0))
    """How often a step plays other tasks in place of those whose attempts all earned the same.
    Above 0 these are not learned, nor counted in any mean of the loss."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.dual_clip is not None and self.surrogate == "cispo":
            raise ValueError(
                "dual_clip has no effect with surrogate 'cispo', whose weights are bounded for "
                "every A: leave it out"
            )

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The module's first term, token by token; `OnPolicy.objective` adds the KL."""
        given = (
            tokens.logprobs_NT,
            tokens.old_logprobs_NT,
            tokens.advantages_NT,
            tokens.mask_NT,
        )
        bounds = {"low": self.clip_low, "high": self.clip_high}
        if self.surrogate == "cispo":
            return losses.weighted_policy_gradient(*given, **bounds)
        if self.surrogate == "gspo":
            return losses.sequence_surrogate(*given, **bounds, dual=self.dual_clip)
        return losses.clipped_surrogate(*given, **bounds, dual=self.dual_clip)

    async def play(self, run: Any, step: int) -> tuple[Group, ...]:
        """All groups of the step, those that are not learned too, in the order of play."""
        groups = await self._played(run, step)
        num_wanted = len(groups)
        for refill in range(1, self.max_refills + 1):
            num_missing = num_wanted - sum(map(has_signal, groups))
            if not num_missing:
                break
            groups += await self._played(run, step, refill=refill, num_tasks=num_missing)
        return groups

    async def _played(self, run: Any, step: int, **which: int) -> tuple[Group, ...]:
        groups = await run.player.groups(step, **which)
        return without_overlong(groups) if self.overlong == "mask" else groups

    def sequences(self, groups: Sequence[Group]) -> tuple[TokenSequence, ...]:
        """Those of all groups, or where a step is refilled, of groups with a signal.

        Episodes and groups are numbered as they were played, for the record.
        """
        sequences = to_sequences(groups)
        if not self.max_refills:
            return sequences
        return tuple(sequence for sequence in sequences if has_signal(groups[sequence.group]))

    async def train_step(self, run: Any, step: int) -> StepReport:
        """As ever; where a step is refilled, the share without signal is of all that was played."""
        report = await super().train_step(run, step)
        if not self.max_refills:
            return report
        num_played = len(report.groups)
        num_silent = num_played - sum(map(has_signal, report.groups))
        metrics = {
            "refills": float(num_played - run.player.training.tasks_per_step),
            "groups_without_signal": num_silent / max(1, num_played),
        }
        return attrs.evolve(report, metrics={**report.metrics, **metrics})
