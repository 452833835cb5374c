"""DPO, Direct Preference Optimization, between whole trajectories of agents.

    loss = mean over pairs of  -(1 - s) log sigmoid(m) - s log sigmoid(-m)
    m = beta ((log pi - log pi_ref)(chosen) - (log pi - log pi_ref)(rejected))

(arXiv 2305.18290, equation 7; s is `label_smoothing`, as in conservative DPO, Mitchell 2023.) The
log-probability of a trajectory is the sum over the tokens that the policy said in all its turns,
and in all the sequences that its context was cut into; what the world says is in none, as in ETO
(arXiv 2403.02502). The reference is the policy with which the stage began.

How it is computed: policy and reference are scored first; then each row's loss is

    -A log pi,  with A = +-beta ((1 - s) sigmoid(-m) - s sigmoid(m)) / pairs

whose gradient at the current weights is exactly that of the loss above, for any division into
micro-batches and ranks. So there is one optimizer step in each training step.

A departure: pairs may also come from what the policy plays in that very step, at its current
weights, and not only from files or from an earlier stage, as in the papers.
"""

from collections.abc import Mapping
from typing import Any

import attrs
from attrs.validators import ge, gt, in_, lt

from agentgym_core.data_files import find_files
from agentgym_core.explored import explored_groups, refuse_twice
from agentgym_core.protocols import Algorithm, Engine, StepReport
from agentgym_core.samplers import shuffled_places
from agentgym_core.statistics import episode_metrics, sampling_gap
from agentgym_core.types import Advantages, TokenTensors
from agentgym_dpo.pairs import Pairing, Preferences, pairs_of_files, pairs_of_groups
from agentgym_dpo.preference import credit, margins, to_batch, token_credit


@attrs.frozen(kw_only=True)
class DPO(Algorithm):
    """Raises what is preferred over what is not, by its log-ratio to the stage's first policy."""

    beta: float = attrs.field(default=0.1, validator=gt(0))
    """How near the policy stays to the reference: the inverse of the scale of the margins."""
    label_smoothing: float = attrs.field(default=0.0, validator=[ge(0), lt(0.5)])
    """Probability that a preference is the wrong way round."""
    data: str | tuple[str, ...] | None = None
    """Files of pairs; see `pairs.pairs_of_files`. With neither this nor `explored` each step plays
    its groups, and pairs them."""
    explored: tuple[str, ...] = ()
    """Names of earlier stages whose groups are paired, such as one with `explore`."""
    pairing: Pairing = attrs.field(default="best-worst", validator=in_(("best-worst", "all")))
    """Of each group: its best and worst attempt, or every two that differ."""
    margin: float = attrs.field(default=0.0, validator=ge(0))
    """A pair's rewards differ by more than that."""
    batch_size: int = attrs.field(default=16, validator=ge(1))
    """Pairs in an optimizer step, with `data` or `explored`."""

    def __attrs_post_init__(self) -> None:
        refuse_twice(explored=self.explored)
        if self.data is not None and self.explored:
            raise ValueError("give `data` or `explored`, not both")
        if self.data is not None and (self.pairing, self.margin) != ("best-worst", 0.0):
            raise ValueError("pairing and margin have no effect on `data`, whose rows are pairs")
        if self.plays and self.batch_size != 16:
            raise ValueError(
                "batch_size has no effect on what a step plays: `training.tasks_per_step` and "
                "`training.group_size` say how much that is"
            )

    @property
    def plays(self) -> bool:
        """Whether its pairs come from what each step plays."""
        return self.data is None and not self.explored

    @property
    def needs(self) -> frozenset[str]:
        """Both sides of the log-ratio."""
        return frozenset({"logprobs", "reference_logprobs"})

    @property
    def learns_from(self) -> tuple[str, ...]:
        """The stages whose groups are paired."""
        return self.explored

    def training_temperature(self, sampling_temperature: float) -> float:
        """That of play for what was played; files are learned as plain text."""
        return sampling_temperature if self.data is None else 1.0

    def check(self, engine: Engine) -> None:
        """Attempts must differ to be paired."""
        if self.plays and engine.temperature <= 0:
            raise ValueError(
                f"temperature is {engine.temperature:g}: pairs need attempts that differ. Set it "
                "above 0, such as 1.0"
            )

    def check_files(self) -> None:
        """Those of `data`."""
        if self.data is not None:
            find_files(self.data)

    async def prepare(self, run: Any) -> Preferences | None:
        """The pairs, if they are there before the first step."""
        if self.plays:
            if run.config.training.group_size < 2:
                raise ValueError("training.group_size is 1: a pair is of two attempts at a task")
            return None
        if self.data is not None:
            found = pairs_of_files(run, self.data)
            lack = "none of the rows fits `limits` with both of its sides"
        else:
            groups = explored_groups(run, self.explored)
            found = pairs_of_groups(groups, self.pairing, self.margin)
            lack = f"the rewards of none of {len(groups)} groups differ by more than `margin`"
        if not found.pairs:
            raise ValueError(f"there are no pairs to learn from: {lack}")
        return found

    async def train_step(self, run: Any, step: int) -> StepReport:
        """Play or pick the pairs, and learn; publish if the next step plays."""
        if not self.plays:
            _, metrics = self.learn(run, step, self._pick(run, step))
            return StepReport(step=step, metrics=metrics)
        groups = await run.player.groups(step)
        found = pairs_of_groups(groups, self.pairing, self.margin)
        credits, metrics = self.learn(run, step, found.only(found.pairs))
        await run.publish(step + 1)
        return StepReport(
            step=step,
            metrics=episode_metrics(groups) | metrics,
            groups=groups,
            sequences=found.sequences,
            advantages=Advantages(values=token_credit(found.sequences, credits)),
        )

    def learn(
        self, run: Any, step: int, preferences: Preferences
    ) -> tuple[dict[int, float], dict[str, float]]:
        """One optimizer step, unless there is no pair.

        Returns:
            The credit of each trajectory, which its tokens share; and metrics.
        """
        counts = {"pairs": float(len(preferences.pairs))}
        if not preferences.pairs:
            return {}, counts | {"update_skipped": 1.0}
        sequences = preferences.sequences
        scores = run.trainer.score(sequences, self.needs)
        found = margins(preferences, scores, self.beta)
        slopes_P = found.slopes(self.label_smoothing)
        credits = credit(preferences.pairs, slopes_P, self.beta)
        batch = to_batch(step, preferences, scores, token_credit(sequences, credits))
        updated = run.trainer.update(batch, run.beating(self.loss))
        gap = sampling_gap(sequences, scores) if self.plays else {}
        learned = found.metrics(self.label_smoothing) | {"update_skipped": 0.0}
        return credits, counts | gap | dict(updated) | learned

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """The row's share, whose gradient is that of the module's first equation."""
        logprobs_NT = tokens.logprobs_NT.masked_fill(~tokens.mask_NT, 0.0)
        return -tokens.advantages_NT * logprobs_NT, {}

    def _pick(self, run: Any, step: int) -> Preferences:
        """The step's pairs: epoch after epoch, each in an order of its own."""
        prepared: Preferences = run.prepared
        first = step * self.batch_size
        end = first + self.batch_size
        places = shuffled_places(len(prepared.pairs), first, end, run.seed, "dpo")
        return prepared.only([prepared.pairs[place] for place in places])
