"""Which tasks there are, in which splits, and how they are named.

A task is a variation of one of ScienceWorld's 30 tasks. Its id is AgentGym's `sciworld_<index>`
where AgentGym's index has it, and otherwise `sciworld_<name>_<variation>`. Nothing here starts the
simulator: `tasks.json` says how many variations it has.
"""

import functools
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources

import attrs

from agentgym_core.types import Task

SPLITS = ("train", "dev", "test", "all", "index")
NOT_INDEXED = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})
"""ScienceWorld's ids of the tasks that AgentGym's index leaves out."""

_TASK_ID = re.compile(r"sciworld_(?:([a-z0-9-]+)_)?([0-9]{1,9})")


@attrs.frozen(kw_only=True)
class TaskKind:
    """One of ScienceWorld's tasks: its variations are numbered through train, dev and test."""

    id: str
    """Such as "4-4"."""
    name: str
    """Such as "find-animal"."""
    train: int
    """Variations for training: the first ones."""
    dev: int
    test: int
    first_item: int | None
    """AgentGym's index of variation 0; None if it has none."""

    @property
    def num_variations(self) -> int:
        """In all splits."""
        return self.train + self.dev + self.test

    def variations(self, split: str) -> range:
        """Those of a split."""
        dev, test = self.train, self.train + self.dev
        if split == "index" and self.first_item is None:
            return range(0)
        return {
            "train": range(dev),
            "dev": range(dev, test),
            "test": range(test, self.num_variations),
        }.get(split, range(self.num_variations))


@functools.cache
def task_kinds() -> dict[str, TaskKind]:
    """The 30 tasks by their names, in ScienceWorld's order."""
    text = resources.files("agentgym_sciworld").joinpath("tasks.json").read_text(encoding="utf-8")
    found: dict[str, TaskKind] = {}
    item = 0
    for row in json.loads(text):
        indexed = row["id"] not in NOT_INDEXED
        kind = TaskKind(**row, first_item=item if indexed else None)
        found[kind.name] = kind
        item += kind.num_variations if indexed else 0
    return found


def num_items() -> int:
    """The length of AgentGym's index."""
    return sum(len(kind.variations("index")) for kind in task_kinds().values())


def make_task(name: str, variation: int, task_id: str = "") -> Task:
    """The task of a variation, under its own id or another that means the same."""
    first = task_kinds()[name].first_item
    own = f"sciworld_{name}_{variation}" if first is None else f"sciworld_{first + variation}"
    data = {"task": name, "variation": variation}
    return Task(id=task_id or own, category=name, data=data)


def list_tasks(split: str, names: Iterable[str], num_variations: int | None) -> list[Task]:
    """The tasks of a split: the first so many variations of each, None for all."""
    return [
        make_task(name, variation)
        for name, kind in task_kinds().items()
        if name in names
        for variation in kind.variations(split)[:num_variations]
    ]


def read_task(task: Task) -> tuple[str, int]:
    """Return a task's name and variation.

    Its data may hold `task` and `variation`, or `item`, AgentGym's index. What it does not hold,
    the id tells.

    Raises:
        ValueError: they tell of no variation that ScienceWorld has.
    """
    match = _TASK_ID.fullmatch(task.id)
    name, number = (match[1], int(match[2])) if match else (None, None)
    name, number = task.data.get("task", name), task.data.get("variation", number)
    if "task" not in task.data and "item" in task.data:
        name, number = None, task.data["item"]
    if _is_index(number):
        if name is None and number < num_items():
            return _of_item(number)
        kind = task_kinds().get(name) if isinstance(name, str) else None
        if kind is not None and number < kind.num_variations:
            return kind.name, number
    raise ValueError(
        f"task {task.id!r} with data {dict(task.data)!r} names no variation of a task of "
        f"ScienceWorld: write an id such as 'sciworld_12' (0 to {num_items() - 1}) or "
        "'sciworld_find-animal_12', or data such as {'task': 'find-animal', 'variation': 12}"
    )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that are no task's.

    Raises:
        ValueError: one is not.
    """
    for name in names:
        if name not in task_kinds():
            raise ValueError(
                f"`task_names` has {name!r}, which is no task of ScienceWorld: give some of "
                f"{', '.join(task_kinds())}"
            )


def _of_item(item: int) -> tuple[str, int]:
    for kind in task_kinds().values():
        if kind.first_item is not None and item < kind.first_item + kind.num_variations:
            return kind.name, item - kind.first_item
    raise AssertionError("the index is shorter than its length")


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
