"""Rewards: what a run makes of a finished episode, in place of the environment's own reward.

Playing calls `rewarded` once for each episode, in training and in evaluation, when the episode will
not be played anew. The verdict `success` is the environment's, whatever the reward.
"""

import logging
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import attrs

from agentgym_core.contract import is_fault
from agentgym_core.errors import InvalidReward
from agentgym_core.protocols import EpisodeReward, Reward
from agentgym_core.types import Ending, Episode
from agentgym_core.wording import one_line, origin, shown

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class RewardBlock:
    """One term of the reward."""

    use: str
    component: Reward
    weight: float = 1.0
    """What its values are multiplied by before they are summed; 0 keeps its parts as metrics."""

    def __attrs_post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise ValueError(f"weight must be finite, got {self.weight:g}")


def rewarded(episode: Episode, blocks: Sequence[RewardBlock]) -> Episode:
    """Put the weighted sum of the blocks in place of the environment's reward, turn by turn.

    Every turn keeps the environment's reward as `rewards["environment"]`; the last one is given the
    blocks' parts as well, where the later of two that share a name stands. A failed episode, and
    any without blocks, comes back as it is.

    A block is a pure function: what it cannot judge once, it cannot judge again. So its failure
    makes the episode INVALID_REWARD, with an error that names the component and the task.
    """
    if not blocks or episode.ending.is_failure:
        return episode
    try:
        values = [(block.weight, _evaluate(block.component, episode)) for block in blocks]
    except InvalidReward as error:
        log.warning("%s", error)
        return attrs.evolve(
            episode, ending=Ending.INVALID_REWARD, success=False, retries=(), error=str(error)
        )
    turns = [
        attrs.evolve(
            turn,
            reward=sum(weight * value.turns[index] for weight, value in values),
            rewards={**turn.rewards, "environment": turn.reward},
        )
        for index, turn in enumerate(episode.turns)
    ]
    if turns:
        parts = {name: part for _, value in values for name, part in value.parts.items()}
        turns[-1] = attrs.evolve(turns[-1], rewards={**turns[-1].rewards, **parts})
    return attrs.evolve(episode, turns=tuple(turns))


def _evaluate(component: Reward, episode: Episode) -> EpisodeReward:
    """Call the component and hold its answer to the contract.

    Raises:
        InvalidReward: it raised, or returned something else than finite numbers for each turn.
    """
    try:
        return _checked(component(episode), len(episode.turns))
    except BaseException as error:  # a component may raise anything
        if not is_fault(error):
            raise
        problem = one_line(error)
        if not isinstance(error, InvalidReward):
            problem = f"{type(error).__name__}: {problem}"
        raise InvalidReward(f"{origin(component)}, task {episode.task.id}: {problem}") from error


def _checked(value: Any, num_turns: int) -> EpisodeReward:
    """The same in plain numbers."""
    if not isinstance(value, EpisodeReward):
        raise InvalidReward(f"returned {shown(value)}, expected an EpisodeReward")
    turns, parts = tuple(value.turns), dict(value.parts)
    if len(turns) != num_turns:
        raise InvalidReward(f"gave {len(turns)} rewards to an episode of {num_turns} turns")
    named: dict[str, Any] = {f"the reward of turn {i}": reward for i, reward in enumerate(turns)}
    named |= {f"the part {name!r}": part for name, part in parts.items()}
    for name, number in named.items():
        if not (isinstance(number, Real) and math.isfinite(number)):
            raise InvalidReward(f"{name} is {shown(number)}, expected a finite number")
    return EpisodeReward(
        turns=tuple(map(float, turns)), parts={name: float(part) for name, part in parts.items()}
    )


@attrs.frozen(kw_only=True)
class EnvironmentReward(Reward):
    """The environment's own reward, to be summed with others."""

    def __call__(self, episode: Episode) -> EpisodeReward:
        """Each turn's, as it is."""
        return EpisodeReward(turns=tuple(turn.reward for turn in episode.turns))


@attrs.frozen(kw_only=True)
class SuccessReward(Reward):
    """1 on the last turn of a successful episode and 0 elsewhere, whatever the environment pays.

    For environments that pay for partial progress, where only success shall count. Where an agent
    tried again, success in the last attempt counts.
    """

    def __call__(self, episode: Episode) -> EpisodeReward:
        """The verdict as a number."""
        return EpisodeReward(
            turns=tuple(
                float(episode.success_best and index == len(episode.turns) - 1)
                for index in range(len(episode.turns))
            )
        )


@attrs.frozen(kw_only=True)
class FormatPenalty(Reward):
    """Takes something off for every turn whose reply does not name one action."""

    penalty: float = attrs.field(default=0.1, validator=attrs.validators.ge(0))
    """Subtracted from the turn's reward."""

    def __call__(self, episode: Episode) -> EpisodeReward:
        """0 or minus the penalty; the part `format_penalty` is the sum."""
        turns = tuple(-self.penalty if turn.format_error else 0.0 for turn in episode.turns)
        return EpisodeReward(turns=turns, parts={"format_penalty": sum(turns)})


@attrs.frozen(kw_only=True)
class RoundCost(Reward):
    """Takes something off for every round, so that of two ways to succeed the shorter is better."""

    cost: float = attrs.field(default=0.01, validator=attrs.validators.ge(0))
    """Subtracted for each round that a turn spent."""

    def __call__(self, episode: Episode) -> EpisodeReward:
        """Minus the cost of each turn's rounds; the part `round_cost` is the sum."""
        turns = tuple(-self.cost * turn.rounds for turn in episode.turns)
        return EpisodeReward(turns=turns, parts={"round_cost": sum(turns)})
