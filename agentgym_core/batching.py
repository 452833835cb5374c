"""From sequences with credit to the minibatches of a training step.

The loss of a minibatch is one plain sum, weight x token loss. All that usually hides in means and
denominators is in the weights, so micro-batches and ranks can split the rows as they like.
"""

from collections import Counter
from collections.abc import Sequence, Sized
from typing import Any, Literal, get_args

import numpy as np

from agentgym_core.seeds import derive_seed
from agentgym_core.types import (
    Advantages,
    Batch,
    FloatArray,
    Minibatch,
    Row,
    Scores,
    TokenSequence,
)
from agentgym_core.wording import shown

Aggregation = Literal["token-mean", "episode-mean", "constant"]
OldLogprobs = Literal["scored", "sampled"]


def check_aggregation(aggregation: str, constant: float | None) -> None:
    """Refuse an aggregation that is unknown, or that does not go with the constant.

    Raises:
        ValueError: names the key and what it expects.
    """
    if aggregation not in get_args(Aggregation):
        raise ValueError(
            f"aggregation is {aggregation!r}; expected one of {', '.join(get_args(Aggregation))}"
        )
    if aggregation == "constant" and not (constant and 0 < constant < float("inf")):
        raise ValueError(
            f"aggregation 'constant' needs aggregation_constant > 0, got {constant}; the most "
            "tokens that an episode may sample is a good value"
        )
    if aggregation != "constant" and constant is not None:
        raise ValueError(
            f"aggregation_constant has no effect with aggregation {aggregation!r}: leave it out, "
            "or set aggregation to 'constant'"
        )


def token_weights(
    sequences: Sequence[TokenSequence], aggregation: Aggregation, constant: float | None = None
) -> tuple[FloatArray, ...]:
    """The share of every token in the loss of these sequences, which are one whole minibatch.

    `token-mean`: 1 / trained tokens. Long episodes count for more (DAPO, arXiv 2503.14476).
    `episode-mean`: 1 / (episodes x the episode's trained tokens). Each episode counts the same
    however many sequences it was cut into (GRPO, arXiv 2402.03300, equation 3).
    `constant`: 1 / (episodes x constant), free of length bias (Dr. GRPO, arXiv 2503.20783).

    An episode without a trained token has weight 0 and is not counted: its peers' weights are
    what they would be without it.

    Returns:
        T values per sequence, 0 where the mask is. They add up to 1 for the two means.
    """
    check_aggregation(aggregation, constant)
    trained: Counter[int] = Counter()
    for sequence in sequences:
        trained[sequence.episode] += int(sequence.mask.sum())
    num_tokens = trained.total()
    num_episodes = sum(count > 0 for count in trained.values())

    def denominator(episode: int) -> float:
        if aggregation == "token-mean":
            return num_tokens
        return num_episodes * (trained[episode] if constant is None else constant)

    # An episode without trained tokens may have denominator 0; any other number does for it.
    return tuple(sequence.mask / (denominator(sequence.episode) or 1.0) for sequence in sequences)


def make_batch(
    step: int,
    sequences: Sequence[TokenSequence],
    advantages: Advantages,
    scores: Scores,
    *,
    aggregation: Aggregation,
    constant: float | None = None,
    num_minibatches: int,
    num_epochs: int,
    seed: int,
    old_logprobs: OldLogprobs,
    learned: Sequence[bool] | None = None,
    critic_only: bool = False,
) -> Batch:
    """Divide a step's sequences into the minibatches of its optimizer steps.

    Every epoch sees each episode once, in an order that (seed, step, epoch) decides. The sequences
    of an episode stay together; sizes differ by one episode at most; with fewer episodes than
    minibatches there are fewer minibatches. Sequences without a trained token are left out.

    A sequence that is not `learned` counts in the weights of its minibatch, but costs nothing: its
    loss is known to have no gradient, so its row is left out, and a minibatch of none but such.

    The old log-probabilities are those of before the step's first update, over all epochs:
    `scored` by the trainer, or as the engine `sampled` them.
    """
    old = scores.logprobs if old_logprobs == "scored" else tuple(s.logprobs for s in sequences)
    assert old is not None, "old_logprobs 'scored' needs the trainer's logprobs"

    def row(index: int, weights: FloatArray) -> Row:
        sequence = sequences[index]
        return Row(
            token_ids=sequence.token_ids,
            mask=sequence.mask,
            weights=weights,
            advantages=advantages.values[index],
            old_logprobs=old[index],
            sampled_logprobs=sequence.logprobs,
            reference_logprobs=_pick(scores.reference_logprobs, index),
            old_values=_pick(scores.values, index),
            returns=_pick(advantages.returns, index),
            task=sequence.task,
        )

    minibatches: list[Minibatch] = []
    for epoch in range(num_epochs):
        shuffle_seed = derive_seed(seed, "minibatches", step, epoch)
        for indices in _split_by_episode(sequences, num_minibatches, shuffle_seed):
            weights = token_weights([sequences[i] for i in indices], aggregation, constant)
            rows = tuple(
                row(index, share)
                for index, share in zip(indices, weights, strict=True)
                if learned is None or learned[index]
            )
            if rows:
                minibatches.append(Minibatch(rows=rows))
    return Batch(step=step, minibatches=tuple(minibatches), critic_only=critic_only)


def micro_batches(rows: Sequence[Sized], max_tokens: int) -> list[list[int]]:
    """Indices of rows to be computed together: N rows padded to T tokens, N x T <= max_tokens.

    Rows go longest first, so that padding is small and memory runs out at once or never. A row
    longer than `max_tokens` goes alone.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(rows)), key=lambda index: -len(rows[index])):
        if batches and (len(batches[-1]) + 1) * longest <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = len(rows[index])
    return batches


def rank_micro_batches(
    rows: Sequence[Sized], max_tokens: int, rank: int, size: int
) -> tuple[list[list[int]], int]:
    """The micro-batches that one of `size` ranks computes, as many as every other rank.

    Each row is computed by one rank. Rows are dealt longest first, there and back, so that the work
    is even. Parameters that are divided over the ranks (ZeRO-3) need all of them in every forward
    pass: a rank with fewer micro-batches computes one again, or one of the first rank's if it has
    none.

    Returns:
        Indices of rows, as `micro_batches`; and how many of these micro-batches count. Those after
        them are repeats, to be weighted with 0.
    """
    shares: list[list[int]] = [[] for _ in range(size)]
    for place, index in enumerate(sorted(range(len(rows)), key=lambda index: -len(rows[index]))):
        lap, at = divmod(place, size)
        shares[at if lap % 2 == 0 else size - 1 - at].append(index)
    divided = [
        [[share[i] for i in batch] for batch in micro_batches([rows[i] for i in share], max_tokens)]
        for share in shares
    ]
    own = divided[rank]
    repeated = (own or divided[0])[-1:]
    return own + repeated * (max(map(len, divided)) - len(own)), len(own)


def _split_by_episode(
    sequences: Sequence[TokenSequence], num_minibatches: int, seed: int
) -> list[list[int]]:
    """Indices of the sequences of each minibatch of one epoch."""
    members: dict[int, list[int]] = {}
    for index, sequence in enumerate(sequences):
        if sequence.mask.any():
            members.setdefault(sequence.episode, []).append(index)
    if not members:
        return []
    order = np.random.default_rng(seed).permutation(sorted(members))
    parts = np.array_split(order, min(num_minibatches, len(order)))
    return [[index for episode in part for index in members[int(episode)]] for part in parts]


def _pick(arrays: tuple[FloatArray, ...] | None, index: int) -> FloatArray | None:
    return None if arrays is None else arrays[index]


def check_advantages(sequences: Sequence[TokenSequence], advantages: Any) -> None:
    """Hold an estimator to its contract before a wrong number reaches the weights.

    Raises:
        TypeError, ValueError: says what was returned and what is expected.
    """
    if not isinstance(advantages, Advantages):
        raise TypeError(f"returned {shown(advantages)}, expected Advantages")
    if len(advantages.values) != len(sequences):
        raise ValueError(
            f"returned values for {len(advantages.values)} sequences of "
            f"{len(sequences)}; return one array per sequence, in the same order"
        )
    for number, (sequence, values) in enumerate(zip(sequences, advantages.values, strict=True)):
        if values.shape != sequence.mask.shape:
            raise ValueError(
                f"returned shape {values.shape} for sequence {number} of "
                f"{len(sequence)} tokens; return one value per token"
            )
        if not np.isfinite(values).all() or values[~sequence.mask].any():
            raise ValueError(
                f"returned a value for sequence {number} (task {sequence.task}) that is not "
                "finite, or not 0 where the mask is; start from np.zeros and fill in values[mask]"
            )
