"""The suite of rewards."""

import math
from typing import ClassVar

import attrs

from agentgym_core.protocols import EpisodeReward, Reward
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.types import Ending, Episode, Message, Task, Turn


class RewardConformance(ComponentConformance):
    """What training relies on in every reward.

    Example:
        class TestBrevity(RewardConformance):
            reward = Brevity()
    """

    kind: ClassVar[str] = "reward"
    reward: Reward

    def test_one_finite_reward_for_each_turn(self) -> None:
        """Of long and short episodes, failed replies and none at all."""
        for episode in make_episodes():
            value = self.reward(episode)
            assert isinstance(value, EpisodeReward), f"returned {value!r}, not an EpisodeReward"
            assert len(value.turns) == len(episode.turns), (
                f"{len(value.turns)} rewards for {len(episode.turns)} turns"
            )
            for name, number in [*enumerate(value.turns), *value.parts.items()]:
                assert math.isfinite(number), f"{name} is {number}, expected a finite number"

    def test_a_pure_function(self) -> None:
        """A replay of the record must give the same."""
        first = [self.reward(episode) for episode in make_episodes()]
        again = [self.reward(episode) for episode in reversed(make_episodes())][::-1]
        assert first == again, "the same episode is worth something else the second time"


def make_episodes() -> list[Episode]:
    """Won, lost, cut, misread and empty."""
    good = Turn(
        sequence=0,
        prompt_ids=(1, 2),
        token_ids=(3, 4),
        logprobs=(-0.1, -0.2),
        finish_reason="stop",
        policy_version=0,
        text="Action: look",
        action="look",
        observation="A door.",
        rounds=1,
    )
    bad = attrs.evolve(good, text="", action=None, observation="No action.", format_error=True)
    last = attrs.evolve(good, reward=1.0, rewards={"done": 1.0})
    endings = [
        ((good, last), Ending.DONE, True),
        ((good, bad, good), Ending.OUT_OF_ROUNDS, False),
        ((bad,), Ending.OUT_OF_TOKENS, False),
        ((), Ending.AGENT_STOPPED, False),
    ]
    return [
        Episode(
            task=Task(id=f"task_{number}"),
            environment="world",
            sample=0,
            seed=number,
            max_rounds=5,
            turns=turns,
            messages=tuple(Message("assistant", turn.text) for turn in turns),
            ending=ending,
            success=success,
        )
        for number, (turns, ending, success) in enumerate(endings)
    ]
