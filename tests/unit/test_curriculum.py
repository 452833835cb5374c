"""The task sampler that prefers tasks of middling success."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_core.curriculum import CurriculumTaskSampler
from agentgym_core.protocols import StepReport
from agentgym_core.types import Ending, Episode, Group, Task

from .test_samplers import pool


def group(task, successes, num, environment="room"):
    episodes = tuple(
        Episode(
            task=task,
            environment=environment,
            sample=sample,
            seed=0,
            max_rounds=1,
            turns=(),
            messages=(),
            ending=Ending.DONE,
            success=sample < successes,
        )
        for sample in range(num)
    )
    return Group(task=task, environment=environment, episodes=episodes)


def report(*groups):
    return StepReport(step=0, metrics={}, groups=groups)


def ids(sampler, pools, num_tasks, step, state, seed=0):
    chosen = sampler.select(pools, num_tasks, step=step, seed=seed, state=state)
    assert all(task in pool.tasks for pool, task in chosen)
    return [task.id for _, task in chosen]


def played(sampler, pools, num_tasks, num_steps, success, start=(0, None)):
    """Play with tasks that succeed at a rate of their own, out of 4 attempts; ids by step."""
    step, state = start
    state = sampler.initial_state() if state is None else state
    steps, states = [], [state]
    for number in range(step, num_steps):
        chosen = sampler.select(pools, num_tasks, step=number, seed=3, state=state)
        steps.append([task.id for _, task in chosen])
        groups = [
            group(task, round(4 * success(task.id)), 4, environment=one.environment)
            for one, task in chosen
        ]
        state = json.loads(json.dumps(sampler.next_state(state, report(*groups))))
        states.append(state)
    return steps, states


def test_estimates_by_hand():
    sampler = CurriculumTaskSampler(learning=0.25)
    one, two = pool("room", 2).tasks
    state = sampler.next_state({}, report(group(one, 2, 4), group(two, 4, 4)))
    assert state == {"room": {"room_0": 0.5, "room_1": 1.0}}
    again = sampler.next_state(state, report(group(one, 4, 4), group(one, 0, 4, "shop")))
    # 0.75 * 0.5 + 0.25 * 1 = 0.625
    assert again == {"room": {"room_0": 0.625, "room_1": 1.0}, "shop": {"room_0": 0.0}}
    assert state["room"]["room_0"] == 0.5, "the old state is not touched"


def test_a_group_that_failed_tells_nothing():
    sampler = CurriculumTaskSampler()
    assert sampler.next_state({}, report(group(Task(id="room_0"), 0, 0))) == {}
    assert sampler.next_state({"room": {"a": 0.5}}, report()) == {"room": {"a": 0.5}}


def test_seen_tasks_are_drawn_in_proportion_to_their_weights():
    # Weights: 1 at 0.5; 0.2 + 0.8 * 4 * 0.25 * 0.75 = 0.8 at 0.25; 0.2 at 0 and 1; in all 2.2.
    sampler = CurriculumTaskSampler(floor=0.2)
    estimates = {"room_0": 0.5, "room_1": 0.25, "room_2": 0.0, "room_3": 1.0}
    state = {"room": estimates}
    pools = [pool("room", 4)]
    counts = Counter(ids(sampler, pools, 1, step, state)[0] for step in range(4000))
    expected = {"room_0": 1 / 2.2, "room_1": 0.8 / 2.2, "room_2": 0.2 / 2.2, "room_3": 0.2 / 2.2}
    for name, share in expected.items():
        assert counts[name] / 4000 == pytest.approx(share, abs=4 * np.sqrt(share / 4000))


def test_unseen_tasks_have_their_share_and_a_pool_is_soon_seen_whole():
    # ceil(0.3 * 5) = 2 of 5 draws are new: 23 tasks are known after the step that draws the last.
    sampler = CurriculumTaskSampler(unseen=0.3)
    pools = [pool("room", 23)]
    steps, states = played(sampler, pools, 5, 12, lambda name: 0.5)
    known = [len(state.get("room", {})) for state in states]
    # The first step has nothing else to draw.
    assert known == [0, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 23, 23]
    assert all(len(set(step)) == 5 for step in steps), "no task comes twice in a step"


def test_a_task_that_never_gives_an_episode_does_not_keep_the_others_out():
    sampler = CurriculumTaskSampler(unseen=0.25)
    pools = [pool("room", 12)]
    state = {}
    for step in range(60):
        chosen = sampler.select(pools, 2, step=step, seed=0, state=state)
        groups = [group(task, 1, 2) for _, task in chosen if task.id != "room_5"]
        state = sampler.next_state(state, report(*groups))
    assert set(state["room"]) == {f"room_{n}" for n in range(12) if n != 5}


def test_a_pool_smaller_than_its_share_is_played_whole_and_more():
    sampler = CurriculumTaskSampler()
    for state in ({}, {"room": {"room_0": 1.0, "room_1": 0.5}}):
        counts = Counter(ids(sampler, [pool("room", 3)], 7, 0, state))
        assert sorted(counts.values()) == [2, 2, 3]


def test_middling_tasks_come_more_often_in_the_long_run():
    rates = {"room_0": 0.0, "room_1": 0.5, "room_2": 1.0}
    steps, _ = played(CurriculumTaskSampler(), [pool("room", 3)], 1, 300, rates.__getitem__)
    counts = Counter(name for step in steps for name in step)
    assert counts["room_1"] > 3 * max(counts["room_0"], counts["room_2"])
    assert min(counts.values()) > 5, "what is hopeless or mastered comes back now and then"


@pytest.mark.parametrize("at", range(7))
def test_a_resumed_run_goes_on_as_if_nothing_had_happened(at):
    pools = [pool("room", 9), pool("shop", 5, weight=0.4)]

    def success(name):
        return int(name[-1]) / 9

    steps, states = played(CurriculumTaskSampler(), pools, 4, 7, success)
    resumed, _ = played(CurriculumTaskSampler(), pools, 4, 7, success, start=(at, states[at]))
    assert resumed == steps[at:]


estimates = st.dictionaries(
    st.sampled_from([f"room_{n}" for n in range(9)] + [f"shop_{n}" for n in range(5)]),
    st.floats(0, 1),
)


@settings(max_examples=60, deadline=None)
@given(estimates, st.integers(0, 10**6), st.integers(1, 12), st.floats(0.01, 1), st.floats(0.1, 10))
def test_whatever_the_state_the_mix_holds_and_the_choice_is_pure(state, step, num, unseen, weight):
    by_pool = {
        name: {id_: p for id_, p in state.items() if id_.startswith(name)}
        for name in ("room", "shop")
    }
    sampler = CurriculumTaskSampler(unseen=unseen)
    pools = [pool("room", 9, weight=weight), pool("shop", 5)]
    before = json.dumps(by_pool)
    chosen = ids(sampler, pools, num, step, by_pool)
    np.random.seed(0)
    assert ids(sampler, pools, num, step, by_pool) == chosen
    assert json.dumps(by_pool) == before
    share = weight / (weight + 1)
    counts = Counter(name[:4] for name in chosen)
    assert counts.total() == num
    assert abs(counts["room"] - share * num) < 2, "the steps before it and this one, each within 1"


@pytest.mark.parametrize("key", ["unseen", "floor", "learning"])
@pytest.mark.parametrize("value", [0, 1.5, -1])
def test_shares_are_shares(key, value):
    with pytest.raises(ValueError, match=f"{key} must be above 0 and at most 1"):
        CurriculumTaskSampler(**{key: value})
