import pickle

import pytest

from agentgym_core.protocols import StepReport
from agentgym_core.rounds import FixedRoundsScheduler
from agentgym_scaling_inter.step_rounds import StepRoundsScheduler

# (rounds, steps per stage, {step: horizon}) as AgentGym-RL trains: BabyAI and WebArena.
SCHEDULES = [
    ([6, 13, 20], 100, {0: 6, 99: 6, 100: 13, 199: 13, 200: 20, 299: 20, 300: 20, 10**6: 20}),
    ([8, 12, 15], 80, {0: 8, 79: 8, 80: 12, 159: 12, 160: 15, 240: 15}),
    ([5], 1, {0: 5, 1: 5, 2: 5}),
    ([4, 4, 9], 10, {9: 4, 10: 4, 19: 4, 20: 9}),
]


@pytest.mark.parametrize(("rounds", "steps_per_stage", "horizons"), SCHEDULES)
def test_scaling_inter_by_hand(rounds, steps_per_stage, horizons):
    scheduler = StepRoundsScheduler(rounds=rounds, steps_per_stage=steps_per_stage)
    for step, horizon in horizons.items():
        assert scheduler.max_rounds(step, None) == horizon


def test_fixed():
    scheduler = FixedRoundsScheduler(rounds=20)
    assert {scheduler.max_rounds(step, None) for step in (0, 1, 10**6)} == {20}


@pytest.mark.parametrize(
    "scheduler",
    [
        FixedRoundsScheduler(rounds=3),
        StepRoundsScheduler(rounds=[2, 5, 7], steps_per_stage=3),
    ],
)
def test_stopped_at_any_step_and_resumed_the_horizons_are_the_same(scheduler):
    def horizons(scheduler, state, steps):
        played = []
        for step in steps:
            played.append(scheduler.max_rounds(step, state))
            state = scheduler.next_state(state, StepReport(step=step, metrics={}))
        return played, state

    whole, _ = horizons(scheduler, scheduler.initial_state(), range(12))
    for stop in range(13):
        before, saved = horizons(scheduler, scheduler.initial_state(), range(stop))
        after, _ = horizons(pickle.loads(pickle.dumps(scheduler)), saved, range(stop, 12))
        assert before + after == whole


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_horizon_below_one_is_refused(rounds):
    with pytest.raises(ValueError, match=f"'rounds' must be >= 1: {rounds}"):
        FixedRoundsScheduler(rounds=rounds)
