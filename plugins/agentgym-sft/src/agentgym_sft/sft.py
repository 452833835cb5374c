"""Supervised fine-tuning: imitate demonstrations, turn by turn.

The loss is the mean cross-entropy of the demonstrator's tokens, `-log pi(token | context)`, over
the minibatch. Only turns marked for loss are learned; what the environment says never is.
Demonstrations are rendered by the same code as rollouts, so that the policy meets in play the very
ids that it was taught on.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from agentgym_core.batching import make_batch
from agentgym_core.demonstrations import demonstration_row, expert_episodes, read_conversations
from agentgym_core.evaluate import summarize
from agentgym_core.expert import Demonstrator, ExpertPolicy
from agentgym_core.protocols import Algorithm, StepReport
from agentgym_core.rollout import Attempts
from agentgym_core.samplers import shuffled_places
from agentgym_core.seeds import derive_seed
from agentgym_core.supervised import to_supervised
from agentgym_core.types import Advantages, Message, Sampling, Scores, TokenSequence, TokenTensors

log = logging.getLogger(__name__)

Dialogue = Sequence[TokenSequence]
"""A tokenized demonstration: one sequence, or several if the template rewrites history."""


@attrs.frozen(kw_only=True)
class SFT(Algorithm):
    """Learns from a file of demonstrations, or from the environments' experts."""

    data: str | None = None
    """A JSONL file of conversations, such as `agentgym demos` writes: rows with `messages`, where
    assistant messages may carry `"loss": false`."""
    num_demonstrations: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )
    """Without `data`: episodes of the experts on training tasks, at the stage's horizon."""
    demonstrator: Demonstrator = attrs.field(factory=Demonstrator)
    """Without `data`: how careful the expert is."""
    batch_size: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    """Demonstrations in an optimizer step. `training.num_steps` x `batch_size` are seen in all."""

    def __attrs_post_init__(self) -> None:
        if (self.data is None) == (self.num_demonstrations is None):
            raise ValueError(
                "give exactly one of `data` (a JSONL file) and `num_demonstrations` (to be played "
                "by the environments' experts)"
            )

    def training_temperature(self, sampling_temperature: float) -> float:
        """Imitation learns the plain distribution, however it is sampled later."""
        del sampling_temperature
        return 1.0

    async def prepare(self, run: Any) -> tuple[Dialogue, ...]:
        """Read or play the demonstrations, and tokenize them."""
        if self.data is not None:
            conversations = read_conversations(Path(self.data))
        else:
            conversations = await self._demonstrate(run)
        dialogues = [
            to_supervised(run.renderer, messages, number, run.config.limits)
            for number, messages in enumerate(conversations)
        ]
        self._report_cut(conversations, dialogues)
        learned = tuple(d for d in dialogues if any(sequence.mask.any() for sequence in d))
        if not learned:
            raise ValueError(
                f"none of {len(dialogues)} demonstrations has a turn to learn: each is marked with "
                '`"loss": false`, or does not fit `limits`'
            )
        return learned

    async def train_step(self, run: Any, step: int) -> StepReport:
        """One optimizer step. The engine gets the weights when something is played with them."""
        sequences = [s for dialogue in self._pick(run, step) for s in dialogue]
        batch = make_batch(
            step,
            sequences,
            Advantages(values=tuple(np.zeros(len(s)) for s in sequences)),
            Scores(),
            aggregation="token-mean",
            num_minibatches=1,
            num_epochs=1,
            seed=run.seed,
            old_logprobs="sampled",
        )
        return StepReport(step=step, metrics=run.trainer.update(batch, self.loss))

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """Cross-entropy; the trainer reports its mean as `loss`."""
        return -tokens.logprobs_NT.masked_fill(~tokens.mask_NT, 0.0), {}

    def _report_cut(
        self, conversations: Sequence[Sequence[Message]], dialogues: Sequence[Dialogue]
    ) -> None:
        """Say how many demonstrations go beyond what an episode may take."""
        cut = sum(
            len({turn for sequence in dialogue for turn in sequence.turns.tolist()} - {-1})
            < sum(message.role == "assistant" for message in messages)
            for messages, dialogue in zip(conversations, dialogues, strict=True)
        )
        if cut:
            log.warning(
                "%d of %d demonstrations do not fit limits.max_prompt_tokens and "
                "limits.max_response_tokens: the turns beyond are not learned",
                cut,
                len(dialogues),
            )

    def _pick(self, run: Any, step: int) -> list[Dialogue]:
        """The step's demonstrations: epoch after epoch, each in an order of its own."""
        first = step * self.batch_size
        places = shuffled_places(len(run.prepared), first, first + self.batch_size, run.seed, "sft")
        return [run.prepared[place] for place in places]

    async def _demonstrate(self, run: Any) -> list[tuple[Message, ...]]:
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
        return [episode.messages for episode in episodes]

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
