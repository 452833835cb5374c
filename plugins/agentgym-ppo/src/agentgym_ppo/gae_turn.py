"""Generalised advantage estimation by turn (Turn-PPO, arXiv 2512.17008, section 4).

    delta_k = R_k + gamma V_{k+1} - V_k
    A_k = delta_k + gamma lam A_{k+1}

k counts the turns of an episode that are trained. V_k is the critic's value of the state in which
the turn began, R_k the sum of its tokens' rewards. Every token of a turn gets A_k.
"""

from collections.abc import Sequence

import attrs
import numpy as np
from attrs.validators import ge, le

from agentgym_core.credit import chains, whitened
from agentgym_core.protocols import AdvantageEstimator
from agentgym_core.types import Advantages, Scores, TokenSequence
from agentgym_ppo.gae import bootstrap, explained_variance, generalised


@attrs.frozen(kw_only=True)
class TurnGAE(AdvantageEstimator):
    """Credit for every turn from the critic's values, the same for all its tokens.

    Rewards per turn are its steps. gamma and lam count turns, so that they do not depend on how
    long replies are. The critic's target is A_k + V_k for every token of turn k: what comes is the
    same from any place in the turn. An episode that was cut is continued as in `gae`.
    """

    gamma: float = attrs.field(default=0.99, validator=[ge(0), le(1)])
    """Discount per turn."""
    lam: float = attrs.field(default=0.95, validator=[ge(0), le(1)])
    """1 trusts the rewards that came, 0 the critic alone; per turn."""
    bootstrap_truncated: bool = True
    """See `gae`."""
    whiten: bool = True
    """Shift and scale the advantages of the whole batch's tokens to mean 0 and deviation 1."""

    @property
    def needs(self) -> frozenset[str]:
        """A critic."""
        return frozenset({"values"})

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return advantages and the critic's targets; `explained_variance` is the critic's."""
        assert scores.values is not None
        advantages = tuple(np.zeros(len(sequence)) for sequence in sequences)
        returns = tuple(np.zeros(len(sequence)) for sequence in sequences)
        token_rewards = [sequence.rewards for sequence in sequences]
        for chain in chains(sequences):
            _, first, turn_of = np.unique(chain.turns, return_index=True, return_inverse=True)
            rewards = np.add.reduceat(chain.read(token_rewards), first)
            values = chain.read(scores.values)[first]
            end = bootstrap(chain, sequences, scores) if self.bootstrap_truncated else 0.0
            credit = generalised(rewards, values, end, self.gamma, self.lam)
            chain.write(credit[turn_of], advantages)
            chain.write((credit + values)[turn_of], returns)
        return Advantages(
            values=whitened(sequences, advantages) if self.whiten else advantages,
            returns=returns,
            metrics={"explained_variance": explained_variance(sequences, scores.values, returns)},
        )
