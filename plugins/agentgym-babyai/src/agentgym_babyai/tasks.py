"""How tasks are named, and which of them are held out.

A task is a level and the seed of its generator. Its id is AgentGym's `babyai_<index>`, where the
level's number is index % 40 + 1 and the seed is index // 40.
"""

import re
from collections.abc import Collection, Mapping
from typing import TypeGuard

from agentgym_babyai.levels import LEVELS, Level, find_level
from agentgym_core.seeds import derive_seed
from agentgym_core.types import Task

NUM_TEST_CANDIDATES = 100
"""Test tasks have seeds below this one."""

_PAPER_SHARE: Mapping[str, int] = {
    "GoTo": 5,
    "Pickup": 3,
    "ActionObjDoor": 5,
    "FindObjS7": 5,
    "OneRoomS20": 5,
    "SynthLoc": 5,
}
"""Test tasks of each level of a group: the groups' sums, 55, 15, 5, 5, 5 and 5, are those of the
test set in AgentGym-RL's paper. Which tasks that set holds is not public: ours are a sample."""

UNWINNABLE: Mapping[str, Collection[int]] = {
    "GoToImpUnlock": (6, 14, 35, 63),
    "Unlock": (63,),
}
"""Seeds below 100 with which the only key lies behind the door that it opens. Their tasks are in
neither the training nor the test split."""

_TASK_ID = re.compile(r"babyai_([0-9]{1,12})")


def make_task(level: Level, seed: int) -> Task:
    """The task of a level and a seed."""
    return Task(
        id=f"babyai_{seed * len(LEVELS) + level.number - 1}",
        category=level.group,
        data={"level": level.name, "seed": seed},
    )


def read_task(task: Task) -> tuple[Level, int]:
    """Return a task's level and seed: what its data does not hold, the id tells.

    Raises:
        ValueError: they tell of no level.
    """
    match = _TASK_ID.fullmatch(task.id)
    seed, place = divmod(int(match[1]), len(LEVELS)) if match else (None, None)
    seed = task.data.get("seed", seed)
    wanted = task.data.get("level", None if place is None else place + 1)
    if wanted is None or not _is_seed(seed):
        raise ValueError(
            f"task {task.id!r} with data {dict(task.data)!r} names no level and seed: write an id "
            "such as 'babyai_12', or data such as {'level': 'GoToRedBall', 'seed': 3}"
        )
    return find_level(wanted), seed


def held_out_seeds(level: Level, num_seeds: int | None) -> Collection[int]:
    """Seeds of the level's test tasks, whatever the other options; None takes the paper's share."""
    number = _PAPER_SHARE.get(level.group, 0) if num_seeds is None else num_seeds
    candidates = [seed for seed in range(NUM_TEST_CANDIDATES) if is_winnable(level, seed)]
    ranked = sorted(candidates, key=lambda seed: derive_seed("babyai", "test", level.name, seed))
    return frozenset(ranked[:number])


def is_winnable(level: Level, seed: int) -> bool:
    """Whether the mission is not known to be impossible."""
    return seed not in UNWINNABLE.get(level.name, ())


def _is_seed(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
