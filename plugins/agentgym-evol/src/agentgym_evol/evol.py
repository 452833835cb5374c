"""AgentEvol's second half: learn what exploration found, weighted by its reward.

    J = E over explored and original trajectories of  R log pi(trajectory)

(AgentGym, arXiv 2406.04151.) R is an explored episode's reward, and `original_weight` for original
data. A run writes the method as stages: `sft` clones behaviour; then, as often as it likes, a stage
with `explore` plays all environments with the policy as it stands, and one with `evol` learns from
that and the original data, from the base model (`model: base`, as in the paper, against
overfitting) or on (`model: previous`, the default). Departures, the second of which a key undoes:

- The loss of a minibatch is a mean over its learned tokens, weighted by R
  (`agentgym_core.imitation`): a constant over the paper's sum, but for how minibatches differ in
  length and reward.
- Episodes of reward 0 or less are left out; with `weighting: one` all that pass the filter count 1.
- Explored tokens are learned as they were sampled, never encoded again.
"""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import attrs
from attrs.validators import gt, in_, min_len

from agentgym_core.conversations import read_conversations
from agentgym_core.data_files import find_files
from agentgym_core.explored import demonstrated, explored_groups, refuse_twice
from agentgym_core.imitation import Imitation, Lesson, to_lessons
from agentgym_core.sequences import to_sequences
from agentgym_core.types import Episode, Group

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Evol(Imitation):
    """Reward-weighted imitation of what earlier stages explored, and of original data."""

    explored: tuple[str, ...] = attrs.field(validator=min_len(1))
    """Names of earlier stages whose episodes are learned, such as those with `explore`."""
    demonstrations: tuple[str, ...] = ()
    """Names of earlier `sft` stages whose `num_demonstrations` are the original data."""
    data: str | tuple[str, ...] | None = None
    """Original data from files, as in `sft`."""
    only_success: bool = False
    """Leaves out explored episodes that did not succeed."""
    min_reward: float | None = None
    """Leaves out explored episodes whose reward is below."""
    weighting: Literal["reward", "one"] = attrs.field(
        default="reward", validator=in_(("reward", "one"))
    )
    """An explored episode counts as much as its reward, or all count the same."""
    original_weight: float = attrs.field(default=1.0, validator=gt(0))
    """Weight of each original trajectory."""

    def __attrs_post_init__(self) -> None:
        refuse_twice(explored=self.explored, demonstrations=self.demonstrations)
        original = self.data is not None or self.demonstrations
        if self.original_weight != 1.0 and not original:
            raise ValueError(
                "original_weight has no effect without original data: give `demonstrations` or "
                "`data`, or leave it out"
            )

    @property
    def learns_from(self) -> tuple[str, ...]:
        """Both kinds of earlier stages."""
        return (*self.explored, *self.demonstrations)

    def check_files(self) -> None:
        """Those of `data`."""
        if self.data is not None:
            find_files(self.data)

    async def lessons(self, run: Any) -> Sequence[Lesson]:
        """What was explored, then what was there before."""
        groups = explored_groups(run, self.explored)
        episodes = [episode for group in groups for episode in group.episodes]
        kept = [episode for episode in episodes if self._passes(episode)]
        original = demonstrated(run, self.demonstrations)
        if self.data is not None:
            original += read_conversations(self.data)
        said = f"{len(kept)} of {len(episodes)} episodes that {', '.join(self.explored)} explored"
        if not kept and not original:
            raise ValueError(
                f"{said} pass `only_success`, `min_reward` and `weighting`, and there is no "
                "original data: explore more, ask for less, or give `demonstrations` or `data`"
            )
        level = logging.INFO if kept else logging.WARNING
        log.log(level, "it learns from %s, and from %d original", said, len(original))
        explored = [lesson for episode in kept for lesson in self._explored(episode)]
        return [*explored, *to_lessons(run, original, self.original_weight)]

    def _passes(self, episode: Episode) -> bool:
        if self.only_success and not episode.success:
            return False
        if self.min_reward is not None and episode.reward < self.min_reward:
            return False
        return self.weighting == "one" or episode.reward > 0

    def _explored(self, episode: Episode) -> list[Lesson]:
        """The episode's own tokens; none if the policy never spoke."""
        group = Group(task=episode.task, environment=episode.environment, episodes=(episode,))
        sequences = to_sequences([group])
        weight = episode.reward if self.weighting == "reward" else 1.0
        return [Lesson(sequences=sequences, weight=weight)] if sequences else []
