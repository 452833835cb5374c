"""The training step that SFT and AgentEvol share. They write only `lessons`.

    loss = sum over lessons and tokens of  w -log pi(token | context)  /  sum over them of w

Both sums are over the learned tokens of the whole minibatch, whatever the micro-batches and ranks,
so the loss is a mean cross-entropy in which a lesson of weight 0.5 counts half.
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from attrs.validators import ge

from agentgym_core.batching import make_batch
from agentgym_core.conversations import Conversation
from agentgym_core.protocols import Algorithm, StepReport
from agentgym_core.samplers import shuffled_places
from agentgym_core.supervised import to_supervised
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence, TokenTensors

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True, eq=False)
class Lesson:
    """Something to imitate, as the policy meets it in play."""

    sequences: tuple[TokenSequence, ...]
    """One, or several if the template rewrites history."""
    weight: float = 1.0
    """Above 0."""

    @property
    def num_learned(self) -> int:
        """Tokens under the mask."""
        return sum(int(sequence.mask.sum()) for sequence in self.sequences)


@attrs.frozen(kw_only=True)
class Imitation(Algorithm):
    """Learns the tokens of conversations and episodes that are there before its first step."""

    batch_size: int = attrs.field(default=16, validator=ge(1))
    """Demonstrations in an optimizer step. `training.num_steps` x `batch_size` are seen in all."""

    def training_temperature(self, sampling_temperature: float) -> float:
        """Imitation learns the plain distribution, however it is sampled later."""
        del sampling_temperature
        return 1.0

    @abstractmethod
    async def lessons(self, run: Any) -> Sequence[Lesson]:
        """Everything to be learned, in an order that the configuration and the seed decide.

        Raises:
            ValueError: there is nothing, or it cannot be read.
        """

    async def prepare(self, run: Any) -> tuple[Lesson, ...]:
        """The lessons, numbered; those without a learned token are left out."""
        found = await self.lessons(run)
        learned = [lesson for lesson in found if lesson.num_learned]
        if not learned:
            raise ValueError(
                f"none of {len(found)} demonstrations has a turn to learn: each is marked with "
                '`"loss": false`, or does not fit `limits`'
            )
        return tuple(_numbered(lesson, number) for number, lesson in enumerate(learned))

    async def train_step(self, run: Any, step: int) -> StepReport:
        """One optimizer step. The engine gets the weights when something is played with them."""
        chosen = self._pick(run, step)
        sequences = [sequence for lesson in chosen for sequence in lesson.sequences]
        batch = make_batch(
            step,
            sequences,
            Advantages(values=lesson_weights(chosen)),
            Scores(),
            aggregation="token-mean",
            num_minibatches=1,
            num_epochs=1,
            seed=run.seed,
            old_logprobs="sampled",
        )
        return StepReport(step=step, metrics=run.trainer.update(batch, self.loss))

    def loss(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """Weighted cross-entropy; the trainer reports its mean as `loss`."""
        logprobs_NT = tokens.logprobs_NT.masked_fill(~tokens.mask_NT, 0.0)
        return -tokens.advantages_NT * logprobs_NT, {}

    def _pick(self, run: Any, step: int) -> list[Lesson]:
        """The step's lessons: epoch after epoch, each in an order of its own."""
        first = step * self.batch_size
        places = shuffled_places(len(run.prepared), first, first + self.batch_size, run.seed, "sft")
        return [run.prepared[place] for place in places]


def lesson_weights(lessons: Sequence[Lesson]) -> tuple[FloatArray, ...]:
    """The weight of every token, T values for each sequence: 1 if all lessons weigh the same.

    `token-mean` divides by the number of tokens; what it then lacks, to divide by the sum of their
    weights, is in here.
    """
    num_tokens = sum(lesson.num_learned for lesson in lessons)
    total = sum(lesson.weight * lesson.num_learned for lesson in lessons)
    return tuple(
        np.where(sequence.mask, lesson.weight * (num_tokens / total), 0.0)
        for lesson in lessons
        for sequence in lesson.sequences
    )


def to_lessons(run: Any, conversations: Sequence[Conversation], weight: float) -> list[Lesson]:
    """Conversations as the run's policy meets them; says how many go beyond `limits`."""
    found = [render(run, conversation, 0) for conversation in conversations]
    cut = sum(map(is_cut, conversations, found))
    if cut:
        log.warning(
            "%d of %d demonstrations do not fit limits.max_prompt_tokens and "
            "limits.max_response_tokens: the turns beyond are not learned",
            cut,
            len(found),
        )
    return [Lesson(sequences=sequences, weight=weight) for sequences in found]


def render(run: Any, conversation: Conversation, number: int) -> tuple[TokenSequence, ...]:
    """A conversation as the run's policy meets it, with `number` as its episode and group.

    Raises:
        ValueError: the chat template or the tokenizer refuses it; says where it stands.
    """
    limits = run.config.limits
    try:
        found = to_supervised(run.renderer, conversation.messages, number, limits)
    except Exception as error:  # tokenizers have errors of their own
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{conversation.place}: {kind}{error}") from error
    return tuple(attrs.evolve(sequence, task=conversation.place) for sequence in found)


def is_cut(conversation: Conversation, sequences: Sequence[TokenSequence]) -> bool:
    """Whether what was rendered of it lacks turns that go beyond `limits`."""
    turns = {turn for sequence in sequences for turn in sequence.turns.tolist()} - {-1}
    return len(turns) < sum(message.role == "assistant" for message in conversation.messages)


def _numbered(lesson: Lesson, number: int) -> Lesson:
    sequences = [attrs.evolve(s, episode=number, group=number) for s in lesson.sequences]
    return attrs.evolve(lesson, sequences=tuple(sequences))
