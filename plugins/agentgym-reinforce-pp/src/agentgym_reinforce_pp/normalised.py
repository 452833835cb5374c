"""Advantages that are normalised over the whole batch (REINFORCE++, arXiv 2501.03262)."""

from collections.abc import Sequence

import attrs
import numpy as np
from attrs.validators import ge, gt, le

from agentgym_core.credit import chains, compare_attempts, discounted, spread, whitened
from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence


@attrs.frozen(kw_only=True)
class NormalisedReturns(AdvantageEstimator):
    """What is still to be earned from a token on, normalised over the trained tokens of the batch.

        G = r + gamma r' + gamma^2 r'' + ...      from the token to the end of its episode
        A = (G - mean(G)) / (std(G) + eps)        over all trained tokens of the step

    Time runs over generated tokens alone, through all sequences of an episode in the order of its
    turns. So the reward of a turn is credited to the turn's tokens and those before it, never to
    later ones; a KL in the reward (`kl_estimator: k1`) likewise. Without either, and with gamma 1,
    G is the episode's reward. Tokens of long episodes weigh more in mean and deviation.

    Fewer than two trained tokens are not normalised; equal G give exactly 0.
    """

    gamma: float = attrs.field(default=1.0, validator=[gt(0), le(1)])
    """Discount of each further token; 1 is none."""
    eps: float = attrs.field(default=1e-8, validator=ge(0))
    """Added to the standard deviation, in units of reward."""

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return the advantages; `return_mean` and `return_std` are those of G."""
        returns = [np.zeros(len(sequence)) for sequence in sequences]
        rewards = [sequence.rewards for sequence in sequences]
        for chain in chains(sequences):
            chain.write(discounted(chain.read(rewards), self.gamma), returns)
        return _normalised(sequences, returns, self.eps)


@attrs.frozen(kw_only=True)
class NormalisedBaseline(AdvantageEstimator):
    """An episode's reward less the mean of its group, normalised over the whole batch.

        B = R - mean(R)                           over the attempts at one task
        A = (B - mean(B)) / (std(B) + eps)        over all trained tokens of the step

    R is the sum of an episode's rewards, whichever turns earned them, and of its KL if that is in
    the reward. Each episode enters its group's mean once; every trained token of it gets the same
    A. No group is divided by its own deviation. The second mean is over tokens: where long episodes
    earn less it is not 0, and a group of equal rewards, whose B is exactly 0, is then moved with
    all others. If no group has a signal, all A are 0.
    """

    compares_groups = True

    eps: float = attrs.field(default=1e-8, validator=ge(0))
    """Added to the standard deviation, in units of reward."""

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return the advantages.

        `return_mean` and `return_std` are those of B; `groups_without_signal` is the share of
        groups whose B is 0.
        """
        credit, metrics = compare_attempts(sequences, lambda rewards: rewards - rewards.mean())
        return _normalised(sequences, spread(sequences, credit), self.eps, **metrics)


def _normalised(
    sequences: Sequence[TokenSequence],
    values: Sequence[FloatArray],
    eps: float,
    **metrics: float,
) -> Advantages:
    pairs = zip(sequences, values, strict=True)
    trained = np.concatenate([np.zeros(0), *(value[seq.mask] for seq, value in pairs)])
    if trained.size:
        metrics |= {"return_mean": float(trained.mean()), "return_std": float(trained.std())}
    return Advantages(values=whitened(sequences, values, eps), metrics=metrics)
