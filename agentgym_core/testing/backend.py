"""A trainer that learns nothing, but remembers what it was given."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from agentgym_core.protocols import Loss, Trainer, Weights
from agentgym_core.types import Batch, FloatArray, Scores, TokenSequence


@attrs.define(kw_only=True)
class RecordingTrainer(Trainer):
    """Scores every sampled token as the engine did; keeps the batches of all updates."""

    batches: list[Batch] = attrs.field(factory=list[Batch])
    version: int = 0

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """The sampling log-probabilities, also as the reference's; values are 0."""
        sampled = tuple(sequence.logprobs.copy() for sequence in sequences)

        def given(need: str, values: tuple[FloatArray, ...]) -> tuple[FloatArray, ...] | None:
            return values if need in needs else None

        return Scores(
            logprobs=given("logprobs", sampled),
            reference_logprobs=given("reference_logprobs", sampled),
            values=given("values", tuple(0 * line for line in sampled)),
            final_values=np.zeros(len(sequences)) if "final_values" in needs else None,
        )

    def update(self, batch: Batch, loss: Loss) -> Mapping[str, float]:
        """Remember the batch."""
        del loss
        self.batches.append(batch)
        self.version += 1
        return {"loss": 0.0}

    def weights(self) -> Weights:
        """None: a scripted engine needs none."""
        return ()

    def save(self, folder: Path) -> None:
        """Write how many updates there were."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "version").write_text(str(self.version), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Read it back."""
        self.version = int((folder / "version").read_text(encoding="utf-8"))

    def export(self, folder: Path) -> None:
        """There is no model to write."""
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Nothing to free."""
