"""Generalised advantage estimation by turn (Turn-PPO, arXiv 2512.17008).

    delta_k = R_k + gamma V_{k+1} - V_k
    A_k = delta_k + gamma lam A_{k+1}

k counts the turns of an episode that are trained: a turn is one action. V_k is the critic's value
of the state in which the turn began, before its first token; R_k the sum of its tokens' rewards.
Every token of a turn gets A_k, and after the last turn V is as in `agentgym_ppo.gae`.

The critic's target is A_k + V_k for every token of turn k: what comes is the same from any place in
the turn. Only the value at the first one is used.

Departure from the paper: the ratio is clipped token by token, as the algorithm says; there it is
that of the whole turn.
"""

import attrs
import numpy as np
from attrs.validators import ge, le

from agentgym_core.credit import Chain
from agentgym_core.types import FloatArray
from agentgym_ppo.gae import GAE, generalised


@attrs.frozen(kw_only=True)
class TurnGAE(GAE):
    """Credit for every turn from the critic's values, the same for all its tokens.

    Rewards per turn are its steps.
    """

    gamma: float = attrs.field(default=0.99, validator=[ge(0), le(1)])
    """Discount per turn, however long replies are."""
    lam: float = attrs.field(default=0.95, validator=[ge(0), le(1)])
    """1 trusts the rewards that came, 0 the critic alone; per turn."""

    def credit(
        self, chain: Chain, rewards: FloatArray, values: FloatArray, end: float
    ) -> tuple[FloatArray, FloatArray]:
        """Advantages and targets of a chain's tokens, from its rewards and values."""
        starts = np.flatnonzero(np.append(True, np.diff(chain.turns) != 0))
        lengths = np.diff(np.append(starts, len(chain.turns)))
        earned = np.add.reduceat(rewards, starts)
        credit = generalised(earned, values[starts], end, self.gamma, self.lam)
        return np.repeat(credit, lengths), np.repeat(credit + values[starts], lengths)
