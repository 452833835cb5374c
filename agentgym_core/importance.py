"""Correct for the gap between the policy that sampled and the policy that is trained.

Engine and trainer hold the same weights and still disagree: kernels, precision, a policy that moved
on while an episode was played. With rho_t = pi_trainer(token t) / pi_engine(token t), before the
step's first update, the policy's term is weighted by

    token      min(rho_t, cap)                           (truncated importance sampling)
    sequence   min(prod_t rho_t, cap), for all tokens of the sequence
    mask       rho_t where 1 / cap <= rho_t <= cap, else 0

The product is over the sequence's trained tokens. The weights have no gradient, so they multiply
the advantages: every surrogate here is proportional to them. What a mask takes away still counts in
the loss's denominator. Sources: Yao et al. 2025, "Your efficient RL framework secretly brings you
off-policy RL training" (`token`); Liu et al. 2025, arXiv 2510.18855 (`mask`, called IcePop).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentgym_core.types import FloatArray, TokenSequence

Correction = Literal["none", "token", "sequence", "mask"]

_LARGEST = 30.0
"""Nats: beyond this a ratio is as good as infinite, and exp stays finite."""


def correction_weights(
    sequences: Sequence[TokenSequence],
    trainer_logprobs: Sequence[FloatArray] | None,
    correction: Correction,
    cap: float,
) -> tuple[tuple[FloatArray, ...], dict[str, float]]:
    """Weigh every trained token.

    Args:
        sequences: with the engine's log-probabilities.
        trainer_logprobs: of the same tokens: T values for each sequence; `none` reads none.
        correction: one of the module's three, or `none`, which is 1 everywhere.
        cap: above 1.

    Returns:
        T weights for each sequence, 0 where the mask is; and over all trained tokens
        `correction_mean`, `correction_max` (of rho as it was before the cap; of the product for
        `sequence`) and `correction_cut`, the share that the cap changed.
    """
    if correction == "none":
        return tuple(sequence.mask.astype(np.float64) for sequence in sequences), {}
    assert trainer_logprobs is not None, "a correction compares with the trainer's logprobs"
    ratios = [
        _ratio(sequence, logprobs, whole=correction == "sequence")
        for sequence, logprobs in zip(sequences, trainer_logprobs, strict=True)
    ]
    weights: list[FloatArray] = []
    for sequence, ratio in zip(sequences, ratios, strict=True):
        kept = np.minimum(ratio, cap)
        if correction == "mask":
            kept = np.where((ratio >= 1 / cap) & (ratio <= cap), ratio, 0.0)
        weights.append(np.where(sequence.mask, kept, 0.0))
    raw = np.concatenate([r[s.mask] for r, s in zip(ratios, sequences, strict=True)])
    used = np.concatenate([w[s.mask] for w, s in zip(weights, sequences, strict=True)])
    return tuple(weights), {
        "correction_mean": float(used.mean()),
        "correction_max": float(raw.max()),
        "correction_cut": float((raw != used).mean()),
    }


def _ratio(sequence: TokenSequence, trainer_logprobs: FloatArray, *, whole: bool) -> FloatArray:
    gap = np.where(sequence.mask, trainer_logprobs - sequence.logprobs, 0.0)
    if whole:
        gap = np.full_like(gap, gap.sum())
    return np.exp(np.clip(gap, -_LARGEST, _LARGEST))
