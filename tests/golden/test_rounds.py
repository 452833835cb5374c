import json
import pickle

import pytest

from agentgym_core.protocols import StepReport
from agentgym_core.rounds import FixedRoundsScheduler
from agentgym_scaling_inter.adaptive_rounds import AdaptiveRoundsScheduler
from agentgym_scaling_inter.linear_rounds import LinearRoundsScheduler
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


def test_linear_by_hand():
    # 3 + 5 x step / 4, rounded down: 3, 4.25, 5.5, 6.75, 8
    scheduler = LinearRoundsScheduler(start=3, end=8, num_steps=4)
    assert [scheduler.max_rounds(step, None) for step in range(6)] == [3, 4, 5, 6, 8, 8]


# (success, share cut) of each step, and the horizon that the step after it has: windows of two
# steps, a gain of 0.19, a threshold of 0.61, seen twice in a row.
ADAPTIVE = [
    ((0.1, 0.9), 2),
    ((0.2, 0.2), 2),  # cut 0.55
    ((0.4, 0.2), 2),
    ((0.5, 0.2), 2),  # gain 0.45 - 0.15 = 0.3
    ((0.5, 0.1), 2),  # 0.5 - 0.3 = 0.2, no plateau
    ((0.5, 0.1), 2),  # 0.5 - 0.45: a plateau, seen once
    ((0.5, 0.1), 5),  # 0.5 - 0.5: twice
    ((0.2, 0.7), 5),
    ((0.3, 0.7), 5),  # cut 0.7, seen once, and 0.3 after the step before is no plateau yet
    ((0.4, 0.3), 5),  # cut 0.5: begins to count again
    ((0.6, 0.9), 5),  # gain 0.5 - 0.25; cut 0.6, not above
    ((0.8, 0.9), 5),  # cut 0.9, seen once
    ((0.9, 0.9), 7),  # twice
    ((0.1, 1.0), 7),  # the last stage stays
]


def adaptive_steps():
    return [
        StepReport(step=step, metrics={"success": success, "horizon_cut": cut})
        for step, ((success, cut), _) in enumerate(ADAPTIVE)
    ]


ADAPTS = AdaptiveRoundsScheduler(
    rounds=[2, 5, 7], window=2, min_gain=0.19, cut_threshold=0.61, patience=2
)


def test_adaptive_by_hand():
    state = ADAPTS.initial_state()
    assert ADAPTS.max_rounds(0, state) == 2
    for report, (_, horizon) in zip(adaptive_steps(), ADAPTIVE, strict=True):
        state = ADAPTS.next_state(state, report)
        assert ADAPTS.max_rounds(report.step + 1, state) == horizon, report.step


@pytest.mark.parametrize(
    "scheduler",
    [
        FixedRoundsScheduler(rounds=3),
        StepRoundsScheduler(rounds=[2, 5, 7], steps_per_stage=3),
        LinearRoundsScheduler(start=2, end=7, num_steps=9),
        ADAPTS,
    ],
)
def test_stopped_at_any_step_and_resumed_the_horizons_are_the_same(scheduler):
    def horizons(scheduler, state, reports):
        played = []
        for report in reports:
            played.append(scheduler.max_rounds(report.step, state))
            state = scheduler.next_state(state, report)
        return played, state

    reports = adaptive_steps()
    whole, _ = horizons(scheduler, scheduler.initial_state(), reports)
    for stop in range(len(reports) + 1):
        before, saved = horizons(scheduler, scheduler.initial_state(), reports[:stop])
        again = pickle.loads(pickle.dumps(scheduler))
        after, _ = horizons(again, json.loads(json.dumps(saved)), reports[stop:])
        assert before + after == whole


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_horizon_below_one_is_refused(rounds):
    with pytest.raises(ValueError, match=f"'rounds' must be >= 1: {rounds}"):
        FixedRoundsScheduler(rounds=rounds)
