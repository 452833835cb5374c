"""Which goals there are, which of them are held out, and how tasks are named.

A task is an instance of a goal: the goal with certain distractors, in a certain order. Its id is
AgentGym's `textcraft_<index>` for instance 0 and `textcraft_<index>-<instance>` for the others; the
index counts the craftable items by depth.
"""

import math
import re
from collections.abc import Collection, Sequence
from typing import TypeGuard

from agentgym_core.seeds import derive_seed
from agentgym_core.types import Task
from agentgym_textcraft.puzzles import Puzzles, expert_plan
from agentgym_textcraft.recipe_files import to_name
from agentgym_textcraft.recipes import RecipeBook

TEST_SHARE = {1: 31 / 125, 2: 41 / 291, 3: 25 / 117, 4: 3 / 11}
"""Goals of each depth in the test set of AgentGym-RL's paper, of all there are. Which ones they are
is not public: ours are a sample of our own, of the same sizes."""

_TASK_ID = re.compile(r"textcraft_([0-9]{1,9})(?:-([0-9]{1,9}))?")


def make_task(book: RecipeBook, goal: str, instance: int, task_id: str = "") -> Task:
    """The task of an instance of a goal, under its own id or another that means the same."""
    suffix = f"-{instance}" if instance else ""
    return Task(
        id=task_id or f"textcraft_{book.goals.index(goal)}{suffix}",
        category=f"depth-{book.depths[goal]}",
        data={"goal": goal, "instance": instance},
    )


def read_task(book: RecipeBook, task: Task) -> tuple[str, int]:
    """Return a task's goal and instance.

    Its data may hold `goal` (a name or a Minecraft id) or `item` (AgentGym's index, which counts on
    from the start after the last goal), and `instance`. What it does not hold, the id tells.

    Raises:
        ValueError: they tell of no item that can be crafted.
    """
    match = _TASK_ID.fullmatch(task.id)
    index, instance = map(int, match.groups(default="0")) if match else (None, 0)
    item = task.data.get("item", index)
    goal = task.data.get("goal", book.goals[item % len(book.goals)] if _is_index(item) else None)
    instance = task.data.get("instance", instance)
    name = to_name(goal) if isinstance(goal, str) else ""
    if name not in book.recipes or not _is_index(instance):
        raise ValueError(
            f"task {task.id!r} with data {dict(task.data)!r} names no item that can be crafted: "
            "write an id such as 'textcraft_12' or 'textcraft_12-3', or data such as "
            "{'goal': 'oak planks', 'instance': 3}"
        )
    return name, instance


def _is_index(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value >= 0


def matching_goals(
    puzzles: Puzzles,
    depths: Collection[int],
    plan_lengths: tuple[int, int] | None,
    num_instances: int,
) -> list[str]:
    """The goals that can be made and match, in AgentGym's order.

    Args:
        puzzles: How goals are shown.
        depths: Theirs is one of these.
        plan_lengths: The expert's plan has that many actions, both ends included.
        num_instances: They can be shown in that many different ways.
    """
    shortest, longest = plan_lengths or (1, math.inf)
    return [
        goal
        for goal in puzzles.book.goals
        if puzzles.book.depths[goal] in depths
        and (found := expert_plan(puzzles.book, goal))
        and shortest <= len(found.actions) <= longest
        and puzzles.count(goal) >= num_instances
    ]


def sample_goals(goals: Sequence[str], num_goals: int, seed: int) -> list[str]:
    """So many of the goals, in their order."""
    ranked = sorted(goals, key=lambda goal: derive_seed("textcraft", "goals", seed, goal))
    chosen = frozenset(ranked[:num_goals])
    return [goal for goal in goals if goal in chosen]


def held_out_goals(book: RecipeBook, goals: Sequence[str]) -> frozenset[str]:
    """Our test goals: of each depth the paper's share, whatever the order of the goals."""
    chosen: set[str] = set()
    for depth, share in TEST_SHARE.items():
        ranked = sorted(
            (goal for goal in goals if book.depths[goal] == depth),
            key=lambda goal: derive_seed("textcraft", "test", goal),
        )
        chosen.update(ranked[: round(share * len(ranked))])
    return frozenset(chosen)
