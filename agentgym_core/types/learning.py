"""What is learned from. Arrays are one-dimensional numpy over the T tokens of one sequence."""

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@attrs.frozen(kw_only=True, eq=False)
class TokenSequence:
    """What the engine saw of one episode in one unbroken context, T tokens.

    Example: token_ids 1 5 6 7 2 8 9 4 7 2, mask 0 0 0 1 1 0 0 0 1 1, rewards 0 … 0 1
    """

    token_ids: IntArray
    mask: BoolArray
    """True where the policy sampled the token and learns from it."""
    logprobs: FloatArray
    """Sampling log-probabilities; 0 where nothing was sampled."""
    rewards: FloatArray
    """Each turn's reward, on its last generated token."""
    turns: IntArray
    """Index of the turn that generated the token; -1 elsewhere."""
    versions: IntArray
    """Policy version that sampled the token; -1 elsewhere."""
    states: IntArray = attrs.field(
        default=attrs.Factory(lambda self: np.full(len(self.token_ids), -1), takes_self=True)
    )
    """The state in which the turn was sampled: a number for the world's last observation before it,
    equal for equal texts; 0 before the first one, -1 elsewhere and where it is not known."""
    episode: int
    """Number of its episode in the batch; the sequences of one episode share it."""
    group: int
    """Number of its task in the batch; the attempts at one task share it."""
    truncated: bool = False
    """The episode was cut: see `Ending.is_truncation`."""
    task: str = ""
    """Its id, for errors."""

    def __len__(self) -> int:
        return len(self.token_ids)


@attrs.frozen(kw_only=True, eq=False)
class Scores:
    """What the current and the reference policy say of given tokens: per sequence, T values."""

    logprobs: tuple[FloatArray, ...] | None = None
    """Of the policy as it stands before the update, at the sampling temperature."""
    reference_logprobs: tuple[FloatArray, ...] | None = None
    values: tuple[FloatArray, ...] | None = None
    """Of the state in which each token was sampled, which is all tokens before it."""
    final_values: FloatArray | None = None
    """Of the state after all T tokens: one for each sequence; 0 unless `truncated`."""


@attrs.frozen(kw_only=True, eq=False)
class Advantages:
    """Credit per sequence and token: T values each, 0 where the mask is."""

    values: tuple[FloatArray, ...]
    returns: tuple[FloatArray, ...] | None = None
    """Targets of the value function, where there is one."""
    metrics: Mapping[str, float] = attrs.field(factory=dict[str, float])


@attrs.frozen(kw_only=True, eq=False)
class Row:
    """One sequence as it enters the loss: T values each."""

    token_ids: IntArray
    mask: BoolArray
    weights: FloatArray
    """Share of each token in the loss: the loss is the plain sum of weight x token loss, whatever
    the micro-batch. Adds up to 1 over a whole minibatch for the mean aggregations."""
    advantages: FloatArray
    old_logprobs: FloatArray
    """Of the policy before the step's first update: the denominator of the ratio."""
    sampled_logprobs: FloatArray
    reference_logprobs: FloatArray | None = None
    old_values: FloatArray | None = None
    returns: FloatArray | None = None
    task: str = ""
    """Of the sequence, for errors."""

    def __len__(self) -> int:
        return len(self.token_ids)


@attrs.frozen(kw_only=True, eq=False)
class Minibatch:
    """The rows of one optimizer step."""

    rows: tuple[Row, ...]


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Everything that one training step learns from, in the order of its optimizer steps."""

    step: int
    minibatches: tuple[Minibatch, ...]
    critic_only: bool = False
    """The policy is left alone, also where it shares its trunk with the critic: critic warm-up."""


@attrs.frozen(kw_only=True, eq=False)
class TokenTensors:
    """A micro-batch of N rows padded to T tokens, as tensors, for `Algorithm.loss`.

    `mask_NT` is boolean. Padding has mask 0 and weight 0. `logprobs_NT[n, t]` is the
    log-probability of token t given the tokens before it, at the sampling temperature; only it
    (and `values_NT`) has a gradient.
    """

    logprobs_NT: Any
    mask_NT: Any
    advantages_NT: Any
    old_logprobs_NT: Any
    sampled_logprobs_NT: Any
    reference_logprobs_NT: Any = None
    values_NT: Any = None
    old_values_NT: Any = None
    returns_NT: Any = None
