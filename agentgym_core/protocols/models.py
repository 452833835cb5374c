"""Where tokens are sampled and where the policy is trained."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from agentgym_core.model import ModelConfig
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.types import (
    Batch,
    Completion,
    Request,
    Scores,
    TokenSequence,
    TokenTensors,
)


@attrs.frozen(kw_only=True)
class StartContext:
    """What a run tells an engine or backend at its start."""

    model: ModelConfig
    """Always with a `path`: a model from scratch was built and saved before."""
    seed: int
    num_steps: int = 0
    """Training steps of this stage: the length of the learning-rate schedule."""
    temperature: float = 1.0
    """Of sampling: training divides logits by it as well."""
    needs: frozenset[str] = frozenset()
    """Everything that `Trainer.score` will be asked for."""
    ranks: Ranks = ALONE
    """This process among those that share the run: as `Backend.connect` returned it."""


Weights = Iterable[tuple[str, Any]]
"""Parameter names as in the model's `state_dict`, with their tensors."""


class Sampler(Protocol):
    """A started engine."""

    @property
    def max_model_len(self) -> int | None:
        """Most tokens of prompt and completion together; None if unbounded."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Continue the request's ids. Many calls run at once; cancelling one is safe."""
        ...

    async def load(self, weights: Weights, version: int) -> None:
        """Sample from these weights from now on; everything computed before is forgotten."""
        ...

    def release(self, key: str) -> None:
        """No more requests will carry this key."""
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class Engine(Protocol):
    """Where tokens are sampled."""

    @property
    def temperature(self) -> float:
        """Of sampling in training."""
        ...

    @property
    def top_p(self) -> float:
        """Of sampling in training."""
        return 1.0

    @property
    def top_k(self) -> int:
        """Of sampling in training; 0 is off."""
        return 0

    async def start(self, context: StartContext) -> Sampler:
        """Load the model and sample."""
        ...


class Loss(Protocol):
    """`Algorithm.loss`: one value per token, to be weighted and summed by the backend."""

    def __call__(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """Return loss_NT, and metrics by name, each an _NT tensor to be averaged over the mask."""
        ...


class Trainer(Protocol):
    """A started backend: the policy, its optimizer and, if needed, reference and critic.

    Where several ranks share a run, each calls the same methods with the same arguments, and is
    given the same results; how the work is divided among them is the trainer's own affair.
    """

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """Evaluate given tokens under the weights as they stand; no gradients."""
        ...

    def update(self, batch: Batch, loss: Loss) -> Mapping[str, float]:
        """Take one optimizer step for each minibatch. The same batch gives the same result
        whatever the micro-batch size.

        Raises:
            FloatingPointError: a loss or gradient is not finite; the weights are untouched.
        """
        ...

    def refresh_reference(self) -> None:
        """The reference becomes the policy as it stands; `save` writes it from then on.

        Raises:
            ValueError: this backend cannot.
        """
        raise ValueError("this backend keeps the reference that it started with")

    def weights(self) -> Weights:
        """The policy's current weights, for `Sampler.load`."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything that `load` needs to go on bit for bit. All ranks share the folder."""
        ...

    def load(self, folder: Path) -> None:
        """Go on where `save` stood."""
        ...

    def export(self, folder: Path) -> None:
        """Write the policy alone, as a folder that transformers loads. All ranks share it."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


class Backend(Protocol):
    """Where the policy is trained."""

    def connect(self) -> Ranks:
        """Join the other processes that a launcher such as torchrun started for the same run.

        Called once, before anything is read or written. A backend that trains in one process
        inherits this.

        Raises:
            ValueError: what the launcher says makes no sense, or the others do not come.
        """
        return ALONE

    def start(self, context: StartContext) -> Trainer:
        """Load the model and its optimizer."""
        ...


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that the core uses."""

    chat_template: Any
    eos_token_id: int | None

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Tokens beside the vocabulary: those that are `special` control a conversation."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Ids to text."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """Render a conversation as text."""
        ...
