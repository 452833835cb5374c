"""GiGPO, group-in-group advantages (arXiv 2505.10978, section 4)."""

from collections.abc import Sequence

import attrs
import numpy as np
from attrs.validators import ge, le

from agentgym_core.credit import chains, compared, discounted
from agentgym_core.types import Advantages, FloatArray, Scores, TokenSequence
from agentgym_grpo.group_relative import GroupRelative


@attrs.frozen(kw_only=True)
class GiGPO(GroupRelative):
    """The episode against the attempts at its task, and each turn against others in its state.

        A = A_episode + step_weight A_step
        A_step = (G - mean(G)) / (std(G) + eps)      over the turns of the group in one state
        G = r + gamma r' + gamma^2 r'' + ...         from the turn to the end of its episode

    A_episode is that of `group-relative`. A state is the observation that a turn answered: turns of
    one group that answered the same text, in whatever round or attempt, share it; so do all first
    turns. r is the reward of a turn, and a turn that spent no round is one of its own, in the state
    of the turn after it. Every trained token of a turn gets the same A. A state that no other turn
    shares, or whose turns have equal G, gives exactly 0. Departure: the standard deviation has
    n - 1 in the denominator, at both levels.

    Only equal text makes a state equal: worlds that say the same where they are not the same, or
    number their answers, have other groups than the paper means.
    """

    step_weight: float = attrs.field(default=1.0, validator=ge(0))
    """Of the turns' part, omega in the paper."""
    gamma: float = attrs.field(default=0.95, validator=[ge(0), le(1)])
    """Discount of each further turn; 1 is none."""

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return the advantages.

        `groups_without_signal` is the share of groups whose episodes earned the same;
        `shared_states` that of turns in a state that another turn shares.
        """
        whole = super().__call__(sequences, scores)
        steps, shared = self._steps(sequences)
        return Advantages(
            values=tuple(
                episode + self.step_weight * step
                for episode, step in zip(whole.values, steps, strict=True)
            ),
            metrics={**whole.metrics, "shared_states": shared},
        )

    def _steps(self, sequences: Sequence[TokenSequence]) -> tuple[list[FloatArray], float]:
        """A_step for every token; and the share of turns that have something to compare with."""
        values = [np.zeros(len(sequence)) for sequence in sequences]
        rewards = [sequence.rewards for sequence in sequences]
        states: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
        for chain in chains(sequences):
            turns, firsts = np.unique(chain.turns, return_index=True)
            to_go = discounted(np.add.reduceat(chain.read(rewards), firsts), self.gamma)
            for turn, first, value in zip(turns, firsts.tolist(), to_go, strict=True):
                index, place = int(chain.sequences[first]), int(chain.places[first])
                state = int(sequences[index].states[place])
                if state >= 0:
                    members = states.setdefault((chain.group, state), [])
                    members.append((index, int(turn), float(value)))
        for members in states.values():
            credit = compared(np.array([value for _, _, value in members]), self.relative)
            for (index, turn, _), share in zip(members, credit, strict=True):
                sequence = sequences[index]
                values[index][sequence.mask & (sequence.turns == turn)] = share
        num_turns = sum(map(len, states.values()))
        num_shared = sum(len(members) for members in states.values() if len(members) > 1)
        return values, num_shared / max(1, num_turns)
