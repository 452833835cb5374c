"""The numbers of DPO: log-ratios, margins, the loss of each pair and its derivative."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from agentgym_core.types import Batch, FloatArray, Minibatch, Row, Scores, TokenSequence
from agentgym_dpo.pairs import Pair, Preferences


@attrs.frozen(kw_only=True, eq=False)
class Margins:
    """Of P pairs: what the policy has moved towards each side, in units of the implied reward."""

    chosen_P: FloatArray
    """beta (log pi - log pi_ref) of the chosen trajectory."""
    rejected_P: FloatArray

    @property
    def differences(self) -> FloatArray:
        """The m of each pair: chosen less rejected."""
        return self.chosen_P - self.rejected_P

    def losses(self, smoothing: float) -> FloatArray:
        """-(1 - s) log sigmoid(m) - s log sigmoid(-m), without overflow."""
        m_P = self.differences
        return (1 - smoothing) * np.logaddexp(0, -m_P) + smoothing * np.logaddexp(0, m_P)

    def slopes(self, smoothing: float) -> FloatArray:
        """The derivative of the loss with respect to -m: (1 - s) sigmoid(-m) - s sigmoid(m)."""
        m_P = self.differences
        return (1 - smoothing) * _sigmoid(-m_P) - smoothing * _sigmoid(m_P)

    def metrics(self, smoothing: float) -> dict[str, float]:
        """Means over the pairs."""
        return {
            "loss": float(self.losses(smoothing).mean()),
            "preference_accuracy": float((self.differences > 0).mean()),
            "preference_margin": float(self.differences.mean()),
            "chosen_reward": float(self.chosen_P.mean()),
            "rejected_reward": float(self.rejected_P.mean()),
        }


def margins(preferences: Preferences, scores: Scores, beta: float) -> Margins:
    """Sum the log-ratios over the learned tokens of all sequences of each trajectory.

    A trajectory without such a token has log-ratio 0, whatever the policy.
    """
    assert scores.logprobs is not None
    assert scores.reference_logprobs is not None
    ratios: dict[int, float] = {}
    lines = zip(preferences.sequences, scores.logprobs, scores.reference_logprobs, strict=True)
    for sequence, own, reference in lines:
        moved = float((own - reference)[sequence.mask].sum())
        ratios[sequence.episode] = ratios.get(sequence.episode, 0.0) + moved
    chosen, rejected = zip(*preferences.pairs, strict=True)
    return Margins(
        chosen_P=beta * np.array([ratios.get(number, 0.0) for number in chosen]),
        rejected_P=beta * np.array([ratios.get(number, 0.0) for number in rejected]),
    )


def credit(pairs: Sequence[Pair], slopes_P: FloatArray, beta: float) -> dict[int, float]:
    """By trajectory: beta times the slopes of the pairs it was chosen in, less the others'."""
    credits = {number: 0.0 for pair in pairs for number in pair}
    for (chosen, rejected), slope in zip(pairs, slopes_P.tolist(), strict=True):
        credits[chosen] += beta * slope
        credits[rejected] -= beta * slope
    return credits


def token_credit(
    sequences: Sequence[TokenSequence], credits: Mapping[int, float]
) -> tuple[FloatArray, ...]:
    """The trajectory's credit on each of its learned tokens: T values for each sequence."""
    return tuple(np.where(s.mask, credits.get(s.episode, 0.0), 0.0) for s in sequences)


def to_batch(
    step: int, preferences: Preferences, scores: Scores, values: Sequence[FloatArray]
) -> Batch:
    """One minibatch, in which every token has the share 1 / pairs."""
    assert scores.logprobs is not None
    assert scores.reference_logprobs is not None
    rows = [
        Row(
            token_ids=sequence.token_ids,
            mask=sequence.mask,
            weights=sequence.mask / len(preferences.pairs),
            advantages=values[index],
            old_logprobs=scores.logprobs[index],
            sampled_logprobs=sequence.logprobs,
            reference_logprobs=scores.reference_logprobs[index],
            task=sequence.task,
        )
        for index, sequence in enumerate(preferences.sequences)
        if sequence.mask.any()
    ]
    return Batch(step=step, minibatches=(Minibatch(rows=tuple(rows)),))


def _sigmoid(values: FloatArray) -> FloatArray:
    return np.exp(-np.logaddexp(0, -values))
