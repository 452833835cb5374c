"""What advantage estimators share: the attempts at a task, and an episode as one chain of tokens.

An episode may lie in several sequences, and a turn of one between two turns of another. So nothing
here goes by sequences: rewards are summed over the whole episode, and time runs from trained token
to trained token in the order of the turns.
"""

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from agentgym_core.types import FloatArray, IntArray, TokenSequence

SAME_REWARD = 1e-9
"""Rewards this close differ by the rounding of their sums."""


def episode_rewards(sequences: Sequence[TokenSequence]) -> dict[int, dict[int, float]]:
    """By group and episode, the sum of the episode's rewards."""
    rewards: dict[int, dict[int, float]] = {}
    for sequence in sequences:
        group = rewards.setdefault(sequence.group, {})
        reward = float(sequence.rewards.sum())
        group[sequence.episode] = group.get(sequence.episode, 0.0) + reward
    return rewards


def compared(rewards: FloatArray, compare: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """What `compare` says of these rewards; exactly 0 if they are equal, or there is only one."""
    assert np.isfinite(rewards).all(), "episodes with such rewards are dropped before"
    if np.ptp(rewards) <= SAME_REWARD:
        return np.zeros_like(rewards)
    return compare(rewards)


def compare_attempts(
    sequences: Sequence[TokenSequence], compare: Callable[[FloatArray], FloatArray]
) -> tuple[dict[int, float], dict[str, float]]:
    """Hold the attempts at one task against each other, each of them once.

    Args:
        sequences: the whole batch.
        compare: from the rewards of a group's episodes, at least two that differ, to their credit.

    Returns:
        The credit of each episode, and `groups_without_signal`, the share of groups that gave 0.
    """
    credit: dict[int, float] = {}
    num_silent = 0
    groups = episode_rewards(sequences)
    for group in groups.values():
        values = compared(np.array(list(group.values())), compare)
        credit |= zip(group, values.tolist(), strict=True)
        num_silent += not values.any()
    return credit, {"groups_without_signal": num_silent / max(1, len(groups))}


def spread(
    sequences: Sequence[TokenSequence], credit: Mapping[int, float]
) -> tuple[FloatArray, ...]:
    """Give every trained token the credit of its episode: T values for each sequence."""
    return tuple(np.where(seq.mask, credit[seq.episode], 0.0) for seq in sequences)


def whitened(
    sequences: Sequence[TokenSequence], values: Sequence[FloatArray], eps: float = 1e-8
) -> tuple[FloatArray, ...]:
    """Bring values to mean 0 and standard deviation 1, over all trained tokens of the batch.

        (value - mean) / (std + eps)        std with n in the denominator

    Fewer than two trained tokens have no spread: their values come back as they are. Equal values
    give exactly 0.

    Returns:
        T values for each sequence, 0 where the mask is.
    """
    pairs = list(zip(sequences, values, strict=True))
    trained = np.concatenate([np.zeros(0), *(value[seq.mask] for seq, value in pairs)])
    if trained.size < 2:
        return tuple(np.where(seq.mask, value, 0.0) for seq, value in pairs)
    if np.ptp(trained) <= SAME_REWARD:
        return tuple(np.zeros(len(seq)) for seq in sequences)
    mean, std = trained.mean(), trained.std()
    return tuple(np.where(seq.mask, (value - mean) / (std + eps), 0.0) for seq, value in pairs)


def discounted(steps: FloatArray, discount: float) -> FloatArray:
    """From each step on: x + discount x' + discount^2 x'' + …, to the last."""
    sums = np.zeros(len(steps) + 1)
    for place in reversed(range(len(steps))):
        sums[place] = steps[place] + discount * sums[place + 1]
    return sums[:-1]


@attrs.frozen(kw_only=True, eq=False)
class Chain:
    """The trained tokens of one episode, M of them, in the order in which they were sampled."""

    episode: int
    group: int
    sequences: IntArray
    """Index in the batch of the sequence that holds the token."""
    places: IntArray
    """Its place there."""
    turns: IntArray
    """The turn that sampled it."""

    def read(self, arrays: Sequence[FloatArray]) -> FloatArray:
        """Pick M values out of arrays that are one for each sequence."""
        pairs = zip(self.sequences.tolist(), self.places.tolist(), strict=True)
        return np.array([arrays[sequence][place] for sequence, place in pairs], np.float64)

    def write(self, values: FloatArray, arrays: Sequence[FloatArray]) -> None:
        """Put M values into arrays that are one for each sequence."""
        for sequence in np.unique(self.sequences).tolist():
            own = self.sequences == sequence
            arrays[sequence][self.places[own]] = values[own]


def chains(sequences: Sequence[TokenSequence]) -> list[Chain]:
    """Each episode of the batch that has a trained token, by its number."""
    members: dict[int, list[int]] = {}
    for index, sequence in enumerate(sequences):
        if sequence.mask.any():
            members.setdefault(sequence.episode, []).append(index)
    return [_chain(sequences, members[episode]) for episode in sorted(members)]


def _chain(sequences: Sequence[TokenSequence], members: Sequence[int]) -> Chain:
    places = [np.flatnonzero(sequences[index].mask) for index in members]
    turns = np.concatenate(
        [sequences[i].turns[place] for i, place in zip(members, places, strict=True)]
    )
    order = np.argsort(turns, kind="stable")  # a turn lies in one sequence, in its order
    first = sequences[members[0]]
    return Chain(
        episode=first.episode,
        group=first.group,
        sequences=np.repeat(members, [len(place) for place in places])[order],
        places=np.concatenate(places)[order],
        turns=turns[order],
    )
