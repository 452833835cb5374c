import json
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_core.protocols import StepReport, TaskPool
from agentgym_core.samplers import UniformTaskSampler, apportion
from agentgym_core.types import Task


def pool(environment, size, weight=1.0):
    tasks = tuple(Task(id=f"{environment}_{number}") for number in range(size))
    return TaskPool(environment=environment, weight=weight, tasks=tasks)


def ids(pools, num_tasks, step, seed=0):
    chosen = UniformTaskSampler().select(pools, num_tasks, step=step, seed=seed, state=None)
    assert all(task in pool.tasks for pool, task in chosen)
    return [task.id for _, task in chosen]


def test_no_task_comes_twice_within_an_epoch():
    # 7 tasks in steps of 3: epochs end in the middle of a step.
    played = [one for step in range(14) for one in ids([pool("room", 7)], 3, step)]
    epochs = [played[start : start + 7] for start in range(0, 42, 7)]
    assert all(len(set(epoch)) == 7 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6


def test_a_step_larger_than_its_pool_wraps():
    counts = Counter(ids([pool("room", 3)], 7, step=0))
    assert sorted(counts.values()) == [2, 2, 3]
    counts.update(ids([pool("room", 3)], 7, step=1))
    counts.update(ids([pool("room", 3)], 7, step=2))
    assert set(counts.values()) == {7}


def test_a_function_of_seed_step_and_pools():
    pools = [pool("room", 50), pool("shop", 30, weight=2.0)]
    order = [ids(pools, 8, step) for step in range(20)]
    np.random.seed(3)
    assert [ids(pools, 8, step) for step in reversed(range(20))] == order[::-1]
    assert ids(pools, 8, 0, seed=1) != order[0]
    sampler = UniformTaskSampler()
    report = StepReport(step=0, metrics={})
    assert sampler.next_state(sampler.initial_state(), report) is None


def test_pools_are_shuffled_apart():
    first, second = pool("room", 20), pool("shop", 20)
    numbers = [[name.split("_")[1] for name in ids([one], 20, 0)] for one in (first, second)]
    assert numbers[0] != numbers[1]
    # A pool's own order does not depend on its peers.
    together = ids([first, second], 20, 0)
    assert together[:10] == ids([first], 20, 0)[:10]


def test_pools_mix_by_weight_at_every_step():
    pools = [pool("a", 11, weight=0.7), pool("b", 5, weight=0.2), pool("c", 3, weight=0.1)]
    counts = Counter()
    for step in range(50):
        counts.update(name[0] for name in ids(pools, 4, step))
        total = 4 * (step + 1)
        assert counts.total() == total
        for name, weight in (("a", 0.7), ("b", 0.2), ("c", 0.1)):
            assert abs(counts[name] - weight * total) < 1
    assert counts == {"a": 140, "b": 40, "c": 20}


def test_a_late_step_costs_what_the_first_does():
    # Counting up to this step one by one would take hours.
    step = 10**12
    assert len(set(ids([pool("a", 100), pool("b", 50, weight=0.01)], 16, step))) == 16


def test_the_same_whatever_the_hash_seed():
    program = """
import json
from agentgym_core.protocols import TaskPool
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.types import Task
pools = [
    TaskPool(environment=name, weight=weight, tasks=tuple(Task(id=f"{name}_{i}") for i in range(9)))
    for name, weight in (("room", 1.0), ("shop", 0.3))
]
select = UniformTaskSampler().select
steps = [select(pools, 5, step=step, seed=7, state=None) for step in range(6)]
print(json.dumps([[task.id for _, task in chosen] for chosen in steps]))
"""
    orders = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                env=os.environ | {"PYTHONHASHSEED": hash_seed},
                capture_output=True,
                check=True,
            ).stdout
        )
        for hash_seed in ("1", "2")
    ]
    assert orders[0] == orders[1]
    pools = [pool("room", 9), pool("shop", 9, weight=0.3)]
    assert orders[0] == [ids(pools, 5, step, seed=7) for step in range(6)]


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ([], "the run has no environment"),
        ([pool("room", 0)], "'room' has no tasks"),
        ([pool("room", 1, weight=0.0)], "'room' has weight 0.0"),
        ([pool("room", 1, weight=-1.0)], "'room' has weight -1.0"),
        ([pool("room", 1, weight=float("nan"))], "'room' has weight nan"),
    ],
)
def test_refused(pools, message):
    with pytest.raises(ValueError, match=message):
        ids(pools, 1, 0)


def test_apportion_by_hand():
    # Quotients 53, 53/3 = 17.7, 53/5 = 10.6; 24, 24/3 = 8; 23, 23/3 = 7.7; the next is 53/7 = 7.6.
    # The seven largest: 53, 24, 23, 17.7, 10.6, 8, 7.7.
    assert apportion([53, 24, 23], 7) == [3, 2, 2]
    assert apportion([3, 1], 8) == [6, 2]
    assert apportion([1, 1, 1], 4) == [2, 1, 1]
    assert apportion([0.5], 9) == [9]
    assert apportion([1, 2], 0) == [0, 0]


weights = st.lists(st.floats(0.001, 1000), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(weights, st.integers(0, 60))
def test_apportion_is_one_by_one_without_counting(weights, total):
    # Sainte-Laguë's method as it is defined: each item goes to the largest quotient.
    counts = [0] * len(weights)
    for _ in range(total):
        quotients = [Fraction(w) / (2 * n + 1) for w, n in zip(weights, counts, strict=True)]
        counts[quotients.index(max(quotients))] += 1
    assert apportion(weights, total) == counts


@settings(max_examples=100, deadline=None)
@given(weights, st.integers(0, 10**6), st.integers(0, 50))
def test_shares_never_shrink(weights, total, more):
    before, after = apportion(weights, total), apportion(weights, total + more)
    assert sum(before) == total
    assert sum(after) == total + more
    assert all(old <= new for old, new in zip(before, after, strict=True))
