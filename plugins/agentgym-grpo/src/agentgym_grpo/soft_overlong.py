"""Soft over-long punishment (DAPO, arXiv 2503.14476, equation 13)."""

import attrs
from attrs.validators import gt

from agentgym_core.protocols import EpisodeReward, Reward
from agentgym_core.types import Episode


@attrs.frozen(kw_only=True)
class SoftOverlong(Reward):
    """Takes something off as an episode nears the most tokens it should sample, 1 at most.

        0                                              tokens <= max_tokens - margin
        (max_tokens - margin - tokens) / margin        up to max_tokens
        -1                                             beyond

    It stands on the last turn. Departure: the paper's response is one reply; here it is all that
    the policy sampled in the episode.
    """

    max_tokens: int = attrs.field(validator=gt(0))
    """Sampled tokens of an episode, L_max in the paper."""
    margin: int = attrs.field(validator=gt(0))
    """Tokens over which the punishment grows, L_cache in the paper."""

    def __attrs_post_init__(self) -> None:
        if self.margin > self.max_tokens:
            raise ValueError(
                f"margin is {self.margin}, more than max_tokens, {self.max_tokens}: an episode of "
                "no tokens would be too long. Lower margin"
            )

    def __call__(self, episode: Episode) -> EpisodeReward:
        """The punishment; also as the part `soft_overlong`."""
        over = episode.num_tokens - (self.max_tokens - self.margin)
        punishment = -min(1.0, max(0.0, over / self.margin))
        last = len(episode.turns) - 1
        return EpisodeReward(
            turns=tuple(punishment if turn == last else 0.0 for turn in range(last + 1)),
            parts={"soft_overlong": punishment},
        )
