"""Random ragged batches: groups of any size, turns that are not trained, two contexts."""

import attrs
import numpy as np
import torch

from agentgym_core.batching import token_weights
from agentgym_core.types import Scores, TokenSequence, TokenTensors


@attrs.frozen(eq=False)
class Place:
    """One trained token: which sequence of the batch, and where in it."""

    sequence: int
    token: int


@attrs.frozen(eq=False)
class RandomBatch:
    """Sequences with scores; and their episodes as chains of trained tokens."""

    sequences: tuple[TokenSequence, ...]
    scores: Scores
    generator: np.random.Generator

    def chains(self) -> dict[int, list[Place]]:
        """By episode that has any, its trained tokens in the order in which they were sampled."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for index, sequence in enumerate(self.sequences):
            tokens = found.setdefault(sequence.episode, [])
            for token in range(len(sequence)):
                if sequence.mask[token]:
                    tokens.append((int(sequence.turns[token]), token, index))
        return {
            episode: [Place(index, token) for _, token, index in sorted(tokens)]
            for episode, tokens in found.items()
            if tokens
        }

    def read(self, arrays, chain):
        """A chain's values in arrays that are one for each sequence."""
        return [float(arrays[place.sequence][place.token]) for place in chain]

    def groups(self):
        """By group, the reward of each of its episodes."""
        rewards: dict[int, dict[int, float]] = {}
        for sequence in self.sequences:
            group = rewards.setdefault(sequence.group, {})
            group.setdefault(sequence.episode, 0.0)
            for reward in sequence.rewards:
                group[sequence.episode] += float(reward)
        return rewards

    def final_value(self, episode):
        """Of the state where an episode was cut: after its last turn; 0 if it came to its end."""
        own = [i for i, sequence in enumerate(self.sequences) if sequence.episode == episode]
        last = max(own, key=lambda i: self.sequences[i].turns.max())
        return float(self.scores.final_values[last])


def random_batch(
    seed, *, num_groups=4, contexts=2, untrained=0.15, interleaved=False
) -> RandomBatch:
    """A batch that a seed decides.

    Args:
        seed: any whole number.
        num_groups: of 1 to 5 episodes each.
        contexts: the most sequences of an episode.
        untrained: share of turns that are not learned.
        interleaved: a turn of one context may lie between two of another.
    """
    generator = np.random.default_rng(seed)
    sequences: list[TokenSequence] = []
    episode = 0
    for group in range(num_groups):
        for _ in range(int(generator.integers(1, 6))):
            sequences += _episode(generator, episode, group, contexts, untrained, interleaved)
            episode += 1

    def noise(scale=1.0):
        return tuple(scale * generator.normal(size=len(s)) for s in sequences)

    own = tuple(s.logprobs + 0.3 * n for s, n in zip(sequences, noise(), strict=True))
    final = [generator.normal() * sequence.truncated for sequence in sequences]
    scores = Scores(
        logprobs=own,
        reference_logprobs=tuple(o + n for o, n in zip(own, noise(0.5), strict=True)),
        values=noise(),
        final_values=np.array(final),
    )
    return RandomBatch(tuple(sequences), scores, generator)


def _episode(generator, episode, group, contexts, untrained, interleaved) -> list[TokenSequence]:
    num_turns = int(generator.integers(1, 6))
    which = generator.integers(0, contexts, num_turns)
    if not interleaved:
        which = np.sort(which)
    trained = generator.random(num_turns) > untrained
    truncated = bool(generator.random() < 0.4)
    # Rewards are small whole numbers, so that groups of equal ones are common.
    rewards = generator.integers(0, 3, num_turns) * generator.integers(0, 2, num_turns)
    rewards = np.where(trained | ~trained.any(), rewards, 0)
    made = []
    for context in sorted(set(which.tolist())):
        turns = np.flatnonzero(which == context)
        made.append(_context(generator, turns, trained, rewards, (episode, group, truncated)))
    return made


def _context(generator, turns, trained, rewards, named) -> TokenSequence:
    mask, placed, numbers = [], [], []
    for turn in turns:
        read, said = int(generator.integers(1, 4)), int(generator.integers(1, 6))
        mask += [False] * read + [bool(trained[turn])] * said
        placed += [0.0] * (read + said - 1) + [float(rewards[turn])]
        numbers += [-1] * read + [int(turn)] * said
    episode, group, truncated = named
    spoken = np.array(numbers) >= 0
    return TokenSequence(
        token_ids=generator.integers(0, 50, len(mask)),
        mask=np.array(mask),
        logprobs=np.where(spoken, -generator.exponential(size=len(mask)), 0.0),
        rewards=np.array(placed),
        turns=np.array(numbers),
        versions=np.where(spoken, 0, -1),
        episode=episode,
        group=group,
        truncated=truncated,
    )


@attrs.frozen(eq=False)
class LossInputs:
    """Tensors of a batch, padded with what must not matter, and the same numbers one by one."""

    tokens: TokenTensors
    batch: RandomBatch
    advantages: tuple[np.ndarray, ...]
    returns: tuple[np.ndarray, ...]

    def weights(self, aggregation, constant=None):
        """N rows of T weights, 0 in the padding."""
        rows = token_weights(self.batch.sequences, aggregation, constant)
        return padded(rows, self.tokens.mask_NT.shape[1], 0.0)

    def scalars(self):
        """By episode, for each trained token a dictionary of its tensors and numbers."""
        found = []
        for chain in self.batch.chains().values():
            tokens = [self._token(place.sequence, place.token) for place in chain]
            found.append(tokens)
        return found

    def _token(self, row, column):
        at = {
            name: getattr(self.tokens, f"{name}_NT")[row, column]
            for name in ("logprobs", "old_logprobs", "reference_logprobs", "values", "old_values")
        }
        numbers = {"advantage": self.advantages, "target": self.returns}
        return at | {name: float(arrays[row][column]) for name, arrays in numbers.items()}


def padded(rows, width, filling):
    """N rows of T values in float64."""
    array = np.full((len(rows), width), filling)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return torch.tensor(array)


def loss_inputs(batch: RandomBatch, advantages=None) -> LossInputs:
    """Tensors with gradients in `logprobs_NT` and `values_NT`."""
    sequences, scores = batch.sequences, batch.scores
    width = max(map(len, sequences)) + 2
    noise = [batch.generator.normal(size=len(s)) for s in sequences]
    if advantages is None:
        advantages = tuple(np.where(s.mask, n, 0.0) for s, n in zip(sequences, noise, strict=True))
    moved = [batch.generator.normal(scale=0.4, size=len(s)) for s in sequences]
    returns = tuple(v + m for v, m in zip(scores.values, moved, strict=True))
    own = [old + m for old, m in zip(scores.logprobs, reversed_noise(moved), strict=True)]
    values = [v + n for v, n in zip(scores.values, noise, strict=True)]
    far = float("inf")
    tokens = TokenTensors(
        logprobs_NT=padded(own, width, -far).requires_grad_(),
        mask_NT=padded([s.mask for s in sequences], width, 0.0) > 0,
        advantages_NT=padded(advantages, width, 0.0),
        old_logprobs_NT=padded(scores.logprobs, width, -1.0),
        sampled_logprobs_NT=padded([s.logprobs for s in sequences], width, 0.0),
        reference_logprobs_NT=padded(scores.reference_logprobs, width, 3.0),
        values_NT=padded(values, width, 7.0).requires_grad_(),
        old_values_NT=padded(scores.values, width, -7.0),
        returns_NT=padded(returns, width, 50.0),
    )
    return LossInputs(tokens, batch, advantages, returns)


def reversed_noise(noise):
    """The same numbers backwards, so that one quantity says nothing of another."""
    return [row[::-1] for row in noise]
