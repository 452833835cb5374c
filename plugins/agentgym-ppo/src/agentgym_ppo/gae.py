"""Generalised advantage estimation (Schulman et al., arXiv 1506.02438, equation 16), by token.

    delta_i = r_i + gamma V_{i+1} - V_i
    A_i = delta_i + gamma lam A_{i+1}

i counts the trained tokens of an episode alone: the value after an action is that of the state in
which the next token was sampled, with all that the world has said in between. The count goes on
over the sequences of an episode.
"""

from collections.abc import Sequence

import attrs
import numpy as np
from attrs.validators import ge, le

from agentgym_core.credit import Chain, chains, whitened
from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence


@attrs.frozen(kw_only=True)
class GAE(AdvantageEstimator):
    """Credit for every token from the critic's values.

    Rewards per turn are taken where they were earned, on the last token of each turn. An episode
    that was cut is continued by the critic's value of where it was cut; one that came to its end
    is not. The targets of the critic are A_i + V_i, from before any whitening.
    """

    gamma: float = attrs.field(default=1.0, validator=[ge(0), le(1)])
    """Discount per token."""
    lam: float = attrs.field(default=1.0, validator=[ge(0), le(1)])
    """1 trusts the rewards that came, 0 the critic alone. Per token: over an episode of hundreds
    of tokens, 0.95 leaves the end to the critic."""
    bootstrap_truncated: bool = True
    """Continue an episode that was cut (by the horizon, the tokens or the environment's limit)
    with the critic's value; otherwise nothing is worth anything after the cut."""
    whiten: bool = True
    """Shift and scale the advantages of the whole batch to mean 0 and deviation 1."""

    @property
    def needs(self) -> frozenset[str]:
        """A critic."""
        return frozenset({"values"})

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return advantages and the critic's targets; `explained_variance` is the critic's."""
        assert scores.values is not None
        advantages = tuple(np.zeros(len(sequence)) for sequence in sequences)
        returns = tuple(np.zeros(len(sequence)) for sequence in sequences)
        rewards = [sequence.rewards for sequence in sequences]
        for chain in chains(sequences):
            values = chain.read(scores.values)
            end = bootstrap(chain, sequences, scores) if self.bootstrap_truncated else 0.0
            credit = generalised(chain.read(rewards), values, end, self.gamma, self.lam)
            chain.write(credit, advantages)
            chain.write(credit + values, returns)
        return Advantages(
            values=whitened(sequences, advantages) if self.whiten else advantages,
            returns=returns,
            metrics={"explained_variance": explained_variance(sequences, scores.values, returns)},
        )


def generalised(
    rewards: FloatArray, values: FloatArray, end: float, gamma: float, lam: float
) -> FloatArray:
    """The module's equations along one chain; `end` is the value after its last step."""
    errors = rewards + gamma * np.append(values[1:], end) - values
    advantages = np.zeros(len(errors) + 1)
    for step in reversed(range(len(errors))):
        advantages[step] = errors[step] + gamma * lam * advantages[step + 1]
    return advantages[:-1]


def bootstrap(chain: Chain, sequences: Sequence[TokenSequence], scores: Scores) -> float:
    """The critic's value of where the episode was cut; 0 if it came to its end."""
    last = int(chain.sequences[-1])
    if not sequences[last].truncated:
        return 0.0
    assert scores.final_values is not None, "the trainer gave values without final_values"
    return float(scores.final_values[last])


def explained_variance(
    sequences: Sequence[TokenSequence], values: Sequence[FloatArray], returns: Sequence[FloatArray]
) -> float:
    """1 - var(returns - values) / var(returns) over trained tokens; 0 if they do not vary."""
    masks = [sequence.mask for sequence in sequences]
    targets = np.concatenate([r[m] for r, m in zip(returns, masks, strict=True)] or [np.zeros(0)])
    errors = targets - np.concatenate(
        [v[m] for v, m in zip(values, masks, strict=True)] or [np.zeros(0)]
    )
    if len(targets) < 2 or targets.var() < 1e-12:
        return 0.0
    return float(1.0 - errors.var() / targets.var())
