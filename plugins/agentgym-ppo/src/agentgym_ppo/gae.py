"""Generalised advantage estimation (Schulman et al., arXiv 1506.02438, equation 16), by token.

    delta_i = r_i + gamma V_{i+1} - V_i
    A_i = delta_i + gamma lam A_{i+1}

i counts the trained tokens of an episode alone: the value after an action is that of the state in
which the next token was sampled, with all that the world has said in between. The count goes on
over the sequences of an episode, and over a turn that was sampled but is not trained, which is then
the world's doing. After the last token V is 0 if the episode came to its end; if it was cut, V is
the critic's value of where it was cut. The critic's targets are A_i + V_i.

Departure from the paper: advantages are whitened over the batch, as is usual; `whiten: false` is
the paper's.
"""

from collections.abc import Sequence

import attrs
import numpy as np
from attrs.validators import ge, le

from agentgym_core.credit import Chain, chains, discounted, whitened
from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence

CONSTANT = 1e-12
"""Targets of less variance than this are equal but for rounding."""


@attrs.frozen(kw_only=True)
class GAE(AdvantageEstimator):
    """Credit for every token from the critic's values.

    Rewards per turn are taken where they were earned, on the last token of each turn.
    """

    gamma: float = attrs.field(default=1.0, validator=[ge(0), le(1)])
    """Discount per token."""
    lam: float = attrs.field(default=1.0, validator=[ge(0), le(1)])
    """1 trusts the rewards that came, 0 the critic alone. Per token: over an episode of hundreds
    of tokens, 0.95 leaves the end to the critic."""
    bootstrap_truncated: bool = False
    """Continue an episode that was cut (by the horizon, the tokens or the environment's limit)
    with the critic's value, as where a horizon is still to grow; otherwise nothing is worth
    anything after the cut. It needs a gamma below 1: without a discount an episode that is never
    finished loses nothing, and where success alone pays, all values drift to that of success."""
    whiten: bool = True
    """Bring the advantages to mean 0 and deviation 1 over all trained tokens of the batch; fewer
    than two of them stay as they are. The critic's targets are from before."""

    def __attrs_post_init__(self) -> None:
        if self.bootstrap_truncated and self.gamma == 1:
            raise ValueError(
                "bootstrap_truncated needs a gamma below 1, such as 0.99: without a discount an "
                "episode that is never finished loses nothing, and the critic learns that all "
                "states are worth the same"
            )

    @property
    def needs(self) -> frozenset[str]:
        """A critic; also of where episodes were cut, if they are continued there."""
        return frozenset({"values", "final_values"} if self.bootstrap_truncated else {"values"})

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return advantages and the critic's targets.

        `explained_variance`, of the critic, is 1 - var(target - V) / var(target) over trained
        tokens: 1 is perfect, 0 no better than a constant. It is left out where targets are equal.
        """
        assert scores.values is not None, "asked for values, was given none"
        ends = self._ends(sequences, scores)
        rewards = [sequence.rewards for sequence in sequences]
        advantages = [np.zeros(len(sequence)) for sequence in sequences]
        returns = [np.zeros(len(sequence)) for sequence in sequences]
        for chain in chains(sequences):
            credit, targets = self.credit(
                chain, chain.read(rewards), chain.read(scores.values), ends[chain.episode]
            )
            chain.write(credit, advantages)
            chain.write(targets, returns)
        return Advantages(
            values=whitened(sequences, advantages) if self.whiten else tuple(advantages),
            returns=tuple(returns),
            metrics=_explained(sequences, scores.values, returns),
        )

    def credit(
        self, chain: Chain, rewards: FloatArray, values: FloatArray, end: float
    ) -> tuple[FloatArray, FloatArray]:
        """Advantages and targets of a chain's tokens, from its rewards and values."""
        del chain
        credit = generalised(rewards, values, end, self.gamma, self.lam)
        return credit, credit + values

    def _ends(self, sequences: Sequence[TokenSequence], scores: Scores) -> dict[int, float]:
        """What the state after each episode is worth: that of the sequence with its last turn."""
        last: dict[int, tuple[int, int]] = {}
        for index, sequence in enumerate(sequences):
            place = int(sequence.turns.max(initial=-1)), index
            last[sequence.episode] = max(last.get(sequence.episode, place), place)
        ends = dict.fromkeys(last, 0.0)
        for episode, (_, index) in last.items():
            if self.bootstrap_truncated and sequences[index].truncated:
                assert scores.final_values is not None, "asked for final_values, was given none"
                ends[episode] = float(scores.final_values[index])
        return ends


def generalised(
    rewards: FloatArray, values: FloatArray, end: float, gamma: float, lam: float
) -> FloatArray:
    """The module's equations along one chain; `end` is the value after its last step."""
    deltas = rewards + gamma * np.append(values[1:], end) - values
    return discounted(deltas, gamma * lam)


def _explained(
    sequences: Sequence[TokenSequence], values: Sequence[FloatArray], returns: Sequence[FloatArray]
) -> dict[str, float]:
    def trained(arrays: Sequence[FloatArray]) -> FloatArray:
        pairs = zip(arrays, sequences, strict=True)
        return np.concatenate([np.zeros(0), *(array[seq.mask] for array, seq in pairs)])

    targets = trained(returns)
    if targets.size < 2 or targets.var() < CONSTANT:
        return {}
    return {"explained_variance": float(1 - (targets - trained(values)).var() / targets.var())}
