import json
import random
from itertools import pairwise

import pytest

from agentgym_core.protocols import StepReport
from agentgym_scaling_inter.adaptive_rounds import AdaptiveRoundsScheduler


def reported(success, cut=0.0, step=0):
    return StepReport(step=step, metrics={"success": success, "horizon_cut": cut})


def play(scheduler, reports, state=None):
    """The horizon of each step and the one after, and the last state."""
    state = scheduler.initial_state() if state is None else state
    horizons = []
    for step, report in enumerate(reports):
        horizons.append(scheduler.max_rounds(step, state))
        state = scheduler.next_state(state, report)
    return [*horizons, scheduler.max_rounds(len(horizons), state)], state


def adaptive(**options):
    return AdaptiveRoundsScheduler(**({"rounds": (4, 8, 12), "window": 2, "patience": 1} | options))


def test_a_plateau_by_hand():
    # Success over the last two steps, less that over the two before:
    # after step 4: 0.5 - 0.2 = 0.3     5: 0.5 - 0.35 = 0.15     6: 0.5 - 0.5 = 0, a plateau
    reports = [reported(s) for s in (0.2, 0.2, 0.5, 0.5, 0.5, 0.5)]
    assert play(adaptive(min_gain=0.1), reports)[0] == [4, 4, 4, 4, 4, 4, 8]
    # With 0.2, step 5 is one already.
    assert play(adaptive(min_gain=0.2), reports)[0] == [4, 4, 4, 4, 4, 8, 8]


def test_a_gain_of_min_gain_is_no_plateau():
    # 0.25 and 0.5 are exact in binary.
    reports = [reported(s) for s in (0.25, 0.25, 0.5, 0.5)]
    assert play(adaptive(min_gain=0.25), reports)[0][-1] == 4
    assert play(adaptive(min_gain=0.26), reports)[0][-1] == 8


def test_falling_success_is_a_plateau():
    reports = [reported(s) for s in (0.9, 0.9, 0.1, 0.1)]
    assert play(adaptive(), reports)[0] == [4, 4, 4, 4, 8]


def test_a_horizon_that_binds_by_hand():
    # Success rises all the time, so there is no plateau. Mean cut over two steps:
    # after step 2: 0.5    3: 0.55, above 0.5    4: 0.65
    cuts = [(0.1, 0.6), (0.2, 0.4), (0.3, 0.7), (0.4, 0.6)]
    reports = [reported(success, cut) for success, cut in cuts]
    assert play(adaptive(cut_threshold=0.5, min_steps=2), reports)[0] == [4, 4, 4, 8, 8]
    assert play(adaptive(cut_threshold=0.5), reports)[0] == [
        4,
        4,
        4,
        4,
        8,
    ]  # two windows by default
    assert play(adaptive(cut_threshold=0.8), reports)[0] == [4, 4, 4, 4, 4]


def test_a_threshold_of_1_leaves_cuts_out():
    reports = [reported(n / 10, 1.0) for n in range(11)]
    assert set(play(adaptive(cut_threshold=1.0), reports)[0]) == {4}


def test_each_stage_begins_anew():
    # All equal: a plateau as soon as two windows are full, four steps into each stage.
    horizons, state = play(adaptive(), [reported(0.5)] * 12)
    assert horizons == [4] * 4 + [8] * 4 + [12] * 5
    assert state == {"stage": 2, "steps": 0, "seen_for": 0, "success": [], "cut": []}


def test_the_state_by_hand():
    scheduler = adaptive(patience=2)
    _, state = play(scheduler, [reported(0.25, 0.5), reported(0.5, 0.25)])
    assert state == {
        "stage": 0,
        "steps": 2,
        "seen_for": 0,
        "success": [0.25, 0.5],
        "cut": [0.5, 0.25],
    }
    # Five successes: the first falls out of two windows. Means 0.5 and 0.5: a plateau.
    _, state = play(scheduler, [reported(0.5, 0.0)] * 3, state)
    assert state["success"] == [0.5, 0.5, 0.5, 0.5]
    assert state["cut"] == [0.0, 0.0]
    assert (state["steps"], state["seen_for"]) == (5, 1)


def test_patience_wants_the_sign_in_a_row():
    # Cut in both of the last two steps: seen after steps 2, 3, not 4, 5, and then 6, 7, 8.
    cuts = [1, 1, 1, 0, 0, 1, 1, 1, 1]
    reports = [reported(n / 10, cut) for n, cut in enumerate(cuts)]
    scheduler = adaptive(cut_threshold=0.9, patience=3)
    assert play(scheduler, reports)[0] == [4] * 9 + [8]
    assert play(adaptive(cut_threshold=0.9, patience=2, min_steps=3), reports)[0][:4] == [
        4,
        4,
        4,
        8,
    ]


def test_min_steps_hold_a_stage_and_the_sign_must_still_be_there():
    scheduler = adaptive(min_steps=6)
    assert play(scheduler, [reported(0.5)] * 13)[0] == [4] * 6 + [8] * 6 + [12] * 2
    # A plateau at steps 4 and 5 that has ended by step 6.
    rising = [reported(s) for s in (0.1, 0.1, 0.1, 0.1, 0.1, 0.9, 0.9)]
    assert set(play(scheduler, rising)[0]) == {4}


def test_the_last_stage_stays():
    assert play(adaptive(rounds=(7,)), [reported(0.5, 1.0)] * 20)[0] == [7] * 21


def test_steps_without_episodes_leave_the_state():
    scheduler = adaptive()
    _, state = play(scheduler, [reported(0.25, 0.5)] * 3)
    empty = StepReport(step=3, metrics={"episodes": 0.0, "dropped": 1.0})
    assert scheduler.next_state(state, empty) == state
    sparse = [r for _ in range(12) for r in (empty, reported(0.5))]
    assert play(scheduler, sparse)[0][1::2] == play(scheduler, [reported(0.5)] * 12)[0][:-1]


def noisy(num, seed, levels):
    """Success of 128 episodes a step around levels that the horizon gives."""
    source = random.Random(seed)
    for step in range(num):
        wins = sum(source.random() < levels(step) for _ in range(128))
        yield reported(wins / 128, 1 - wins / 128, step)


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_move_it_while_success_rises(seed):
    # Two hundredths a step: a gain of 0.1 from window to window, with a deviation of 0.03.
    scheduler = AdaptiveRoundsScheduler(rounds=(5, 8, 16), cut_threshold=1.0)
    rising = noisy(40, seed, lambda step: 0.1 + 0.02 * step)
    assert set(play(scheduler, rising)[0]) == {5}


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_make_it_flap(seed):
    scheduler = AdaptiveRoundsScheduler(rounds=(5, 8, 12, 16), cut_threshold=1.0)
    horizons, _ = play(scheduler, noisy(80, seed, lambda step: 0.5))
    assert all(before <= after for before, after in pairwise(horizons))
    moves = [n for n, (before, after) in enumerate(pairwise(horizons)) if before != after]
    # It moves at least once, for success never rises; a stage lasts two windows and the patience.
    assert moves
    assert moves[0] >= 11
    assert all(after - before >= 12 for before, after in pairwise(moves))


@pytest.mark.parametrize("stop", range(0, 60, 7))
def test_goes_on_from_a_checkpoint(stop):
    scheduler = AdaptiveRoundsScheduler(rounds=(5, 8, 16))
    reports = list(noisy(60, 3, lambda step: min(0.8, 0.2 + 0.02 * step)))
    whole, end = play(scheduler, reports)
    assert len(set(whole)) > 1
    before, saved = play(scheduler, reports[:stop])
    after, final = play(scheduler, reports[stop:], json.loads(json.dumps(saved)))
    assert before[:-1] + after == whole
    assert final == end


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": []}, r"rounds is \[\]; expected a horizon of at least 1 action"),
        ({"rounds": [9, 4]}, r"which falls.*\[4, 9\] would do"),
        ({"window": 0}, "'window' must be >= 1: 0"),
        ({"min_gain": 0.0}, "'min_gain' must be > 0"),
        ({"min_gain": 1.5}, "'min_gain' must be <= 1"),
        ({"cut_threshold": 0.0}, "'cut_threshold' must be > 0"),
        ({"cut_threshold": 1.1}, "'cut_threshold' must be <= 1"),
        ({"patience": 0}, "'patience' must be >= 1: 0"),
        ({"min_steps": 0}, "'min_steps' must be >= 1: 0"),
        (
            {"window": 4, "patience": 3, "min_steps": 5},
            r"min_steps is 5, but no sign is seen before step 6 .* set it to 6 or more",
        ),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        adaptive(**options)


def test_the_soonest_min_steps_is_accepted():
    assert adaptive(window=4, patience=3, min_steps=6).min_steps == 6
