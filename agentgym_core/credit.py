"""What estimators that give credit along an episode share: its trained tokens as one chain.

An episode may have several sequences. Its chain is their trained tokens in the order in which they
were sampled; what the world said in between is not on it, and neither are turns that are not
trained, whose rewards `agentgym_core.sequences` has moved onto it.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from agentgym_core.types import FloatArray, TokenSequence


@attrs.frozen(eq=False)
class Chain:
    """The n trained tokens of one episode."""

    sequences: Sequence[TokenSequence]
    """Of the whole batch."""
    members: tuple[int, ...]
    """Which of them are the episode's, in order."""

    def gather(self, arrays: Sequence[FloatArray]) -> FloatArray:
        """From T values for each sequence of the batch to n values."""
        parts = [arrays[index][self.sequences[index].mask] for index in self.members]
        return np.concatenate(parts)

    @property
    def rewards(self) -> FloatArray:
        """N rewards."""
        return self.gather([sequence.rewards for sequence in self.sequences])

    def scatter(self, values: FloatArray, arrays: Sequence[FloatArray]) -> None:
        """Write n values to their places in T values for each sequence."""
        start = 0
        for index in self.members:
            mask = self.sequences[index].mask
            end = start + int(mask.sum())
            arrays[index][mask] = values[start:end]
            start = end


def chains(sequences: Sequence[TokenSequence]) -> list[Chain]:
    """One for each episode that has a trained token."""
    members: dict[int, list[int]] = {}
    for index, sequence in enumerate(sequences):
        if sequence.mask.any():
            members.setdefault(sequence.episode, []).append(index)
    return [Chain(sequences, tuple(places)) for places in members.values()]


def empty(sequences: Sequence[TokenSequence]) -> tuple[FloatArray, ...]:
    """Zeros: T for each sequence."""
    return tuple(np.zeros(len(sequence)) for sequence in sequences)


def discounted(steps: FloatArray, discount: float) -> FloatArray:
    """x_t + discount x_{t+1} + discount^2 x_{t+2} + …, for each t."""
    sums = np.zeros(len(steps))
    total = 0.0
    for place in range(len(steps) - 1, -1, -1):
        total = steps[place] + discount * total
        sums[place] = total
    return sums


def whitened(
    values: Sequence[FloatArray], sequences: Sequence[TokenSequence], eps: float = 1e-8
) -> tuple[FloatArray, ...]:
    """Trained tokens' values less their mean, over their standard deviation (n - 1), of the batch.

    With fewer than two trained tokens there is nothing to compare: they stay as they are.
    """
    masks = [sequence.mask for sequence in sequences]
    trained = np.concatenate([v[m] for v, m in zip(values, masks, strict=True)] or [np.zeros(0)])
    if len(trained) < 2:
        return tuple(values)
    mean, deviation = trained.mean(), trained.std(ddof=1)
    return tuple(
        np.where(mask, (value - mean) / (deviation + eps), 0.0)
        for value, mask in zip(values, masks, strict=True)
    )
