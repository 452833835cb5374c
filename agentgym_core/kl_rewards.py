"""The KL to the reference policy as part of the reward.

    r_t <- r_t - coef (log pi_old(token t) - log pi_ref(token t))        at every trained token

The bracket is the estimate k1, whose mean over sampled tokens is KL(pi_old || pi_ref). As a reward
it also counts the states that a token leads to; in a loss its expected gradient is 0.
Source: Ziegler et al. 2019 (arXiv 1909.08593), equation 2, and section 2.2 for the adaptive
coefficient.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from agentgym_core.types import FloatArray, TokenSequence

GAIN = 0.1
"""Share by which the adaptive coefficient follows its error in a step."""
LARGEST_ERROR = 0.2
"""Relative error beyond which the coefficient does not move faster."""


def kl_to_rewards(
    sequences: Sequence[TokenSequence],
    logprobs: Sequence[FloatArray],
    reference_logprobs: Sequence[FloatArray],
    coef: float,
) -> tuple[tuple[TokenSequence, ...], dict[str, float]]:
    """Charge every trained token its share of the KL.

    Returns:
        The sequences with other rewards; and `kl` in nats a token, `kl_episode` in nats an episode,
        and `kl_coef`.
    """
    gaps = [
        np.where(sequence.mask, own - reference, 0.0)
        for sequence, own, reference in zip(sequences, logprobs, reference_logprobs, strict=True)
    ]
    charged = tuple(
        attrs.evolve(sequence, rewards=sequence.rewards - coef * gap)
        for sequence, gap in zip(sequences, gaps, strict=True)
    )
    total = float(sum(gap.sum() for gap in gaps))
    num_tokens = sum(int(sequence.mask.sum()) for sequence in sequences)
    num_episodes = len({sequence.episode for sequence in sequences})
    return charged, {
        "kl": total / max(1, num_tokens),
        "kl_episode": total / max(1, num_episodes),
        "kl_coef": coef,
    }


def next_coefficient(coef: float, kl: float, target: float) -> float:
    """The coefficient after a step whose episodes were `kl` nats from the reference, in the mean.

    coef (1 + 0.1 clip(kl / target - 1, -0.2, 0.2))
    """
    error = min(max(kl / target - 1.0, -LARGEST_ERROR), LARGEST_ERROR)
    return coef * (1.0 + GAIN * error)
