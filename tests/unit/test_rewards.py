"""What a reward makes of an episode, and what becomes of one that breaks the contract."""

import asyncio
from typing import Any

import attrs
import numpy as np
import pytest

from agentgym_core.protocols import EpisodeReward, Reward
from agentgym_core.rewards import (
    EnvironmentReward,
    FormatPenalty,
    RewardBlock,
    RoundCost,
    SuccessReward,
    rewarded,
)
from agentgym_core.rollout import play_groups
from agentgym_core.sequences import to_sequences
from agentgym_core.statistics import episode_metrics
from agentgym_core.types import Ending, Episode, Task, Turn

from .test_rollout import actions, make_table, order


def episode(*rewards, success=False, format_errors=(), ending=Ending.DONE):
    turns = tuple(
        Turn(
            sequence=0,
            prompt_ids=(1,),
            token_ids=(2,),
            logprobs=(-0.5,),
            finish_reason="stop",
            policy_version=0,
            text="go",
            reward=reward,
            rewards={"progress": 0.1},
            rounds=1,
            format_error=index in format_errors,
        )
        for index, reward in enumerate(rewards)
    )
    return Episode(
        task=Task(id="maze_3"),
        environment="maze",
        sample=0,
        seed=1,
        max_rounds=9,
        turns=turns,
        messages=(),
        ending=ending,
        success=success,
    )


def block(component, weight=1.0, use="mine"):
    return RewardBlock(use=use, component=component, weight=weight)


@attrs.frozen(kw_only=True)
class Fixed(Reward):
    """Says what it is told to, or calls it."""

    value: Any

    def __call__(self, episode):
        return self.value(episode) if callable(self.value) else self.value


def test_turn_rewards_are_weighted_sums_by_hand():
    first = Fixed(value=EpisodeReward(turns=(1.0, 2.0), parts={"length": 7.0}))
    second = Fixed(value=EpisodeReward(turns=(0.0, 10.0), parts={"style": -1.0}))
    before = episode(0.25, 0.5, success=True)
    after = rewarded(before, [block(first, 2.0), block(second, -0.5)])
    assert [turn.reward for turn in after.turns] == [2.0, 4.0 - 5.0]
    assert [dict(turn.rewards) for turn in after.turns] == [
        {"progress": 0.1, "environment": 0.25},
        {"progress": 0.1, "environment": 0.5, "length": 7.0, "style": -1.0},
    ]
    unchanged = {"turns": before.turns}
    assert attrs.evolve(after, **unchanged) == before, "only the turns' rewards differ"


def test_a_weight_of_0_leaves_a_metric():
    component = Fixed(value=EpisodeReward(turns=(5.0,), parts={"length": 7.0}))
    after = rewarded(episode(1.0), [block(EnvironmentReward()), block(component, 0.0)])
    assert after.reward == 1.0
    assert after.turns[0].rewards["length"] == 7.0


def test_without_blocks_nothing_changes():
    before = episode(0.5)
    assert rewarded(before, []) is before


def test_a_failed_episode_is_not_judged():
    before = episode(0.5, ending=Ending.ENGINE_FAILED)
    assert rewarded(before, [block(Fixed(value=ZeroDivisionError))]) is before


def test_an_episode_without_turns_has_no_reward_to_give():
    after = rewarded(episode(), [block(SuccessReward()), block(RoundCost())])
    assert (after.turns, after.reward, after.ending) == ((), 0, Ending.DONE)


def test_numbers_of_numpy_are_numbers():
    value = EpisodeReward(turns=np.array([0.5, 1], dtype=np.float32), parts={"n": np.int64(3)})  # type: ignore[arg-type]
    after = rewarded(episode(0, 0), [block(Fixed(value=value))])
    assert [type(turn.reward) for turn in after.turns] == [float, float]
    assert type(after.turns[1].rewards["n"]) is float


def raises(error):
    def call(episode):
        raise error

    return call


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (EpisodeReward(turns=(1.0,)), "gave 1 rewards to an episode of 2 turns"),
        (EpisodeReward(turns=(1.0,) * 3), "gave 3 rewards to an episode of 2 turns"),
        (1.0, "returned 1.0, expected an EpisodeReward"),
        (None, "returned nothing, expected an EpisodeReward"),
        (
            EpisodeReward(turns=(0.0, float("nan"))),
            "the reward of turn 1 is nan, expected a finite number",
        ),
        (
            EpisodeReward(turns=(float("-inf"), 0.0)),
            "the reward of turn 0 is -inf, expected a finite number",
        ),
        (EpisodeReward(turns=(0.0, "1")), "the reward of turn 1 is '1', expected a finite number"),
        (EpisodeReward(turns=None), "TypeError: 'NoneType' object is not iterable"),
        (
            EpisodeReward(turns=(0.0, 1.0), parts={"style": float("inf")}),
            "the part 'style' is inf, expected a finite number",
        ),
        (raises(KeyError("goal")), "KeyError: goal"),
        (raises(ValueError("two\nlines")), "ValueError: two lines"),
    ],
)
def test_what_breaks_the_contract_is_no_reward(value, problem, caplog):
    before = episode(0.5, 0.5, success=True)
    after = rewarded(before, [block(EnvironmentReward()), block(Fixed(value=value))])
    assert after.ending is Ending.INVALID_REWARD
    assert not after.success
    assert after.error == f"Fixed (module {__name__}), task maze_3: {problem}"
    assert after.turns == before.turns, "the record shows what the environment said"
    assert caplog.messages == [after.error]


def test_an_error_names_the_package(monkeypatch):
    monkeypatch.setattr(RoundCost, "__call__", lambda self, episode: None)
    after = rewarded(episode(0.5), [block(RoundCost())])
    assert after.error.startswith("RoundCost (package agentgym-core 0.")


def values(component, *rewards, **facts):
    value = component(episode(*rewards, **facts))
    return value.turns, dict(value.parts)


def test_the_environments_reward_is_taken_as_it_is():
    assert values(EnvironmentReward(), 0.5, -1.0, success=True) == ((0.5, -1.0), {})


def test_success_is_paid_on_the_last_turn():
    assert values(SuccessReward(), 0.5, 0.25, success=True) == ((0.0, 1.0), {})
    assert values(SuccessReward(), 0.5, 0.25) == ((0.0, 0.0), {})
    assert values(SuccessReward(), success=True) == ((), {})


def test_a_format_error_costs():
    found = values(FormatPenalty(penalty=0.25), 1, 1, 1, format_errors=(0, 2))
    assert found == ((-0.25, 0.0, -0.25), {"format_penalty": -0.5})


def test_a_round_costs():
    before = episode(0, 0, 0)
    turns = [attrs.evolve(t, rounds=n) for t, n in zip(before.turns, (1, 0, 2), strict=True)]
    value = RoundCost(cost=0.5)(attrs.evolve(before, turns=tuple(turns)))
    assert value == EpisodeReward(turns=(-0.5, 0.0, -1.0), parts={"round_cost": -1.5})


def play(table, *orders):
    return asyncio.run(play_groups(table, orders, max_concurrent=4))


def test_playing_applies_the_reward_and_training_sees_it():
    table = make_table(["hello", *actions("down", "down", "lift off")])
    blocks = (block(SuccessReward(), 3.0), block(FormatPenalty(penalty=0.5)))
    groups = play(attrs.evolve(table, rewards=blocks), order(2))
    (played,) = groups[0].episodes
    assert [turn.reward for turn in played.turns] == [-0.5, 0.0, 0.0, 3.0]
    assert played.success
    (sequence,) = to_sequences(groups)
    assert sequence.rewards[sequence.rewards != 0].tolist() == [-0.5, 3.0]
    metrics = episode_metrics(groups)
    assert metrics["reward"] == 2.5
    assert metrics["reward/environment"] == 1.0
    assert metrics["reward/format_penalty"] == -0.5
    assert metrics["reward/progress"] == pytest.approx(0.2)


def test_an_episode_is_not_played_anew_for_a_reward_that_failed(caplog):
    calls = []
    table = make_table(["Action: lift off"] * 9)
    component = Fixed(value=lambda episode: calls.append(episode) or 1 / 0)
    (group,) = play(attrs.evolve(table, rewards=(block(component),)), order(2, num=2))
    assert len(calls) == 2
    assert len(table.policy.sampler.requests) == 2
    assert [e.ending for e in group.failures] == [Ending.INVALID_REWARD] * 2
    assert group.episodes == ()
    assert episode_metrics([group])["dropped"] == 1.0


def test_what_is_played_anew_is_judged_once():
    calls = []
    component = Fixed(value=lambda episode: calls.append(episode) or EpisodeReward(turns=(1.0,)))
    table = make_table([ConnectionError("once"), "Action: lift off"])
    (group,) = play(attrs.evolve(table, rewards=(block(component),)), order(2))
    assert len(calls) == len(group.episodes) == 1
