"""Supervised fine-tuning: imitate demonstrations, turn by turn.

The loss is the mean cross-entropy of the demonstrator's tokens, `-log pi(token | context)`, over
the minibatch (`agentgym_core.imitation`, with all weights 1). On an expert's episodes this is
behaviour cloning, the first stage of AgentEvol (AgentGym, arXiv 2406.04151). A
departure: the mean is over the tokens of a minibatch; the paper sums over those of a trajectory.

Only turns marked for loss are learned; what the environment says never is. Demonstrations are
rendered by the same code as rollouts, so that the policy meets in play the very ids that it was
taught on.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

import attrs
from attrs.validators import ge, optional

from agentgym_core.conversations import Conversation, read_conversations, selected
from agentgym_core.data_files import find_files
from agentgym_core.demonstrations import demonstration_row, expert_episodes
from agentgym_core.evaluate import summarize
from agentgym_core.expert import Demonstrator, ExpertPolicy
from agentgym_core.imitation import Imitation, Lesson, to_lessons
from agentgym_core.rollout import Attempts
from agentgym_core.seeds import derive_seed
from agentgym_core.types import Sampling

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class SFT(Imitation):
    """Learns from files of conversations, or from the environments' experts."""

    data: str | tuple[str, ...] | None = None
    """A file, a folder, a pattern of names, or a list of these. See `docs/data.md` for what rows
    may be: OpenAI's messages, demonstrations, rollouts, AgentTraj-L, AgentGym-RL's logs."""
    num_demonstrations: int | None = attrs.field(default=None, validator=optional(ge(1)))
    """Without `data`: episodes of the experts on training tasks, at the stage's horizon."""
    demonstrator: Demonstrator = attrs.field(factory=Demonstrator)
    """Without `data`: how careful the expert is."""
    only_success: bool = False
    """Leaves out conversations that did not succeed."""
    min_reward: float | None = None
    """Leaves out conversations whose reward is below."""

    def __attrs_post_init__(self) -> None:
        if (self.data is None) == (self.num_demonstrations is None):
            raise ValueError(
                "give exactly one of `data` (files of conversations) and `num_demonstrations` (to "
                "be played by the environments' experts)"
            )
        if self.data is not None and self.demonstrator != Demonstrator():
            raise ValueError(
                "demonstrator has no effect on `data`, whose rows say themselves what is learned"
            )

    def check_files(self) -> None:
        """Those of `data`."""
        if self.data is not None:
            find_files(self.data)

    async def lessons(self, run: Any) -> Sequence[Lesson]:
        """Read or play the demonstrations, and tokenize them."""
        if self.data is not None:
            found = read_conversations(self.data)
        else:
            found = await self._demonstrate(run)
        kept = selected(found, only_success=self.only_success, min_reward=self.min_reward)
        log.info("it learns from %d of %d conversations", len(kept), len(found))
        return to_lessons(run, kept, weight=1.0)

    async def _demonstrate(self, run: Any) -> list[Conversation]:
        """Play the training tasks with the expert; the episodes are kept in the run directory."""
        seed = derive_seed(run.seed, "demonstrations")
        player = run.player
        chosen = player.tasks.select(
            player.pools,
            self.num_demonstrations,
            step=0,
            seed=seed,
            state=player.tasks.initial_state(),
        )
        orders = [
            Attempts(
                environment=pool.environment,
                task=task,
                num=1,
                max_rounds=player.horizon(0),
                sampling=Sampling(),
                seed=derive_seed(seed, index),
            )
            for index, (pool, task) in enumerate(chosen)
        ]
        episodes = expert_episodes(await player.play(orders, self._expert))
        rows = [demonstration_row(episode) for episode in episodes]
        run.keep(f"demonstrations/{run.config.name}.jsonl", rows)
        await self._evaluate(run)
        return [
            Conversation(messages=e.messages, success=e.success, reward=e.reward, place=e.task.id)
            for e in episodes
        ]

    @property
    def _expert(self) -> ExpertPolicy:
        return ExpertPolicy(demonstrator=self.demonstrator)

    async def _evaluate(self, run: Any) -> None:
        """The demonstrator's own success on the evaluation's tasks: what imitation can hope for."""
        if run.config.evaluation is None or run.was_evaluated(0, "demonstrator"):
            return
        start = time.perf_counter()
        orders = run.evaluation_orders(temperature=1.0)  # which an expert does not read
        groups = await run.player.play(orders, self._expert)
        run.write_evaluation(0, summarize(groups, "demonstrator"), time.perf_counter() - start)
