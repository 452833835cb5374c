"""Options, splits and tasks, and what a task shows."""

import asyncio
import importlib
import re
from collections import Counter

import attrs
import pytest

from agentgym_core.actions import ActionLine, WholeReply
from agentgym_core.types import Task
from agentgym_textcraft import plugin
from agentgym_textcraft.environment import TextCraft
from agentgym_textcraft.planning import plan
from agentgym_textcraft.recipe_files import recipe_book

BOOK = recipe_book()
SMALL = TextCraft(
    prompt="short",
    tags=False,
    plan_lengths=(3, 6),
    num_goals=40,
    held_out="instances",
    train_instances=8,
    test_instances=2,
    num_distractors=3,
    alternatives=False,
)


def run(coroutine):
    return asyncio.run(coroutine)


async def opening(environment, task, seed=0):
    session = await environment.open()
    return (await session.reset(task, seed)).text


def openings(environment, tasks):
    async def every():
        return [await opening(environment, task) for task in tasks]

    return run(every())


def test_the_plugin_registers_the_class():
    found = {}
    plugin.register_environments(found.__setitem__)
    module, _, name = found.pop("textcraft").partition(":")
    assert getattr(importlib.import_module(module), name) is TextCraft
    assert not found


def test_the_default_splits():
    environment = TextCraft()
    split = {name: environment.tasks(name) for name in ("train", "test", "all")}
    sizes = {"depth-1": 31, "depth-2": 41, "depth-3": 25, "depth-4": 3}  # the paper's
    assert Counter(task.category for task in split["test"]) == sizes
    assert [task.id for task in split["all"]] == [f"textcraft_{index}" for index in range(544)]
    assert [task.data["goal"] for task in split["all"]] == list(BOOK.goals)
    train, test = ({task.id for task in split[name]} for name in ("train", "test"))
    assert train.isdisjoint(test)
    assert len(train) == 444
    assert train | test == {task.id for task in split["all"]}


def test_the_test_goals_stay_the_same():
    """A figure on them is only comparable as long as they do."""
    ids = [int(task.id.removeprefix("textcraft_")) for task in TextCraft().tasks("test")]
    assert ids[:8] == [0, 3, 8, 14, 17, 20, 23, 29]
    assert ids[-3:] == [535, 537, 543]
    assert sum(ids) == 26360


def test_fewer_goals_hold_out_the_same_share():
    # 31 of 125 is 0.248, and of 7 goals 1.7
    environment = TextCraft(depths=(1,), num_goals=7)
    assert (len(environment.tasks("train")), len(environment.tasks("test"))) == (5, 2)


def test_shared_goals_in_different_instances():
    train, test = SMALL.tasks("train"), SMALL.tasks("test")
    assert (len(train), len(test)) == (320, 80)
    goals = Counter(task.data["goal"] for task in train)
    assert len(goals) == 40
    assert set(goals.values()) == {8}
    assert Counter(task.data["goal"] for task in test) == dict.fromkeys(goals, 2)
    assert sorted(t.id for t in (*train, *test)) == sorted(t.id for t in SMALL.tasks("all"))
    assert len({task.id for task in SMALL.tasks("all")}) == 400
    shown = openings(SMALL, SMALL.tasks("all"))
    assert len(set(shown)) == 400
    assert set(openings(SMALL, train)).isdisjoint(openings(SMALL, test))


def test_more_training_instances_leave_the_others_as_they_are():
    more = attrs.evolve(SMALL, train_instances=9)
    assert more.tasks("test") == SMALL.tasks("test")
    assert set(map(str, more.tasks("train"))) > set(map(str, SMALL.tasks("train")))


def test_instances_of_held_out_goals():
    environment = TextCraft(depths=(2,), train_instances=3, test_instances=2)
    goals = {
        name: Counter(t.data["goal"] for t in environment.tasks(name)) for name in ("train", "test")
    }
    assert set(goals["train"].values()) == {3}
    assert set(goals["test"].values()) == {2}
    assert goals["train"].keys().isdisjoint(goals["test"])
    ids = [task.id for task in environment.tasks("all")]
    assert len(set(ids)) == len(ids)


def test_a_goal_that_looks_the_same_in_all_instances_is_left_out():
    """One recipe and nothing to distract from it can be shown in one way."""
    lonely = {
        goal
        for goal in BOOK.goals
        if len(BOOK.below(goal)) == 1
        and all(len(BOOK.uses[i.name]) == 1 for i in BOOK.below(goal)[0].inputs)
    }
    assert "beacon" not in lonely  # others ask for obsidian
    assert "conduit" in lonely
    once = {task.data["goal"] for task in TextCraft().tasks("all")}
    twice = {task.data["goal"] for task in TextCraft(train_instances=2).tasks("all")}
    assert once - twice == lonely


def test_the_goals_that_options_keep():
    assert {t.category for t in TextCraft(depths=(1, 3)).tasks("all")} == {"depth-1", "depth-3"}
    for task in SMALL.tasks("all"):
        assert 3 <= len(plan(BOOK.without_kinds, task.data["goal"], {}).actions) <= 6
    chosen = [task.id for task in TextCraft(num_goals=50).tasks("all")]
    assert len(chosen) == 50
    assert chosen == sorted(chosen, key=lambda id_: int(id_.removeprefix("textcraft_")))
    assert chosen != [task.id for task in TextCraft(num_goals=50, goal_seed=1).tasks("all")]
    # so many and one more: the first ones stay
    assert set(chosen) < {task.id for task in TextCraft(num_goals=51).tasks("all")}


def test_without_tags_nothing_asks_for_a_kind():
    environment = TextCraft(tags=False)
    assert len(environment.tasks("all")) == 544 - 49
    for text in openings(environment, environment.tasks("all")):
        assert not re.search(r"\d (planks|wool)\b", text)
    with pytest.raises(ValueError, match="`tags: false` leaves those out"):
        run(opening(environment, TextCraft().task(f"textcraft_{BOOK.goals.index('chest')}")))


@pytest.mark.parametrize("most", [10, 0])
def test_what_is_shown(most):
    """The useful recipes, once each, and distractors that share an ingredient with one of them."""
    environment = TextCraft(num_distractors=most)
    recipes = {str(recipe): recipe for found in BOOK.recipes.values() for recipe in found}
    tasks = environment.tasks("all")[::7]
    for task, text in zip(tasks, openings(environment, tasks), strict=True):
        lines = text.splitlines()[1:-2]
        below = {str(recipe) for recipe in BOOK.below(task.data["goal"])}
        assert len(set(lines)) == len(lines)
        assert below <= set(lines)
        asked = {i.name for line in below for i in recipes[line].inputs}
        near = {line for line, recipe in recipes.items() if asked & {i.name for i in recipe.inputs}}
        assert set(lines) <= below | near
        assert len(lines) - len(below) == min(most, len(near - below))


def test_without_alternatives_the_recipes_shown_suffice():
    environment = TextCraft(alternatives=False, tags=False, num_distractors=0)

    tasks = environment.tasks("all")
    for task, text in zip(tasks, openings(environment, tasks), strict=True):
        actions = map(str, plan(BOOK.without_kinds, task.data["goal"], {}).actions)
        crafts = {action for action in actions if action.startswith("craft")}
        assert crafts == set(text.splitlines()[1:-2])


def test_recipes_stand_in_no_telling_order():
    """A useful recipe comes first as often as its share: 1 of 4 in these, within 5 deviations."""
    environment = TextCraft(
        depths=(1,), num_distractors=3, held_out="instances", train_instances=20, prompt="short"
    )
    first = trials = 0
    tasks = environment.tasks("all")
    for task, text in zip(tasks, openings(environment, tasks), strict=True):
        lines = text.splitlines()[:-1]
        if len(lines) == 4 and len(BOOK.below(task.data["goal"])) == 1:
            trials += 1
            first += lines[0] == str(BOOK.below(task.data["goal"])[0])
    assert trials > 500
    assert abs(first - trials / 4) < 5 * (trials * 3 / 16) ** 0.5


def test_forms():
    assert TextCraft().action_format == ActionLine()
    assert "get 2 oak logs" in TextCraft().instructions()
    assert SMALL.action_format == WholeReply(instruction="")
    assert SMALL.instructions() == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "medium"}, r"`prompt` is 'medium': give long or short"),
        ({"held_out": "nothing"}, r"`held_out` is 'nothing': give goals or instances"),
        ({"tags": "no"}, r"`tags` is 'no': give true or false"),
        ({"tags": 1}, r"`tags` is 1: give true or false"),
        ({"alternatives": None}, r"`alternatives` is None: give true or false"),
        ({"num_distractors": -1}, r"`num_distractors` is -1: give a whole number of at least 0"),
        ({"num_distractors": True}, r"`num_distractors` is True: give a whole number"),
        ({"train_instances": 0}, r"`train_instances` is 0: give a whole number of at least 1"),
        ({"test_instances": 1.5}, r"`test_instances` is 1.5: give a whole number"),
        ({"num_goals": 0}, r"`num_goals` is 0: give a whole number of at least 1"),
        ({"goal_seed": "a"}, r"`goal_seed` is 'a': give a whole number"),
        ({"depths": []}, r"`depths` is \(\): give a list of depths from 1 to 4"),
        ({"depths": [1, 5]}, r"`depths` is \(1, 5\): give a list of depths from 1 to 4"),
        ({"depths": 2}, r"`depths` is 2: give a list of depths"),
        ({"plan_lengths": [3]}, r"`plan_lengths` is \(3,\): give the fewest and the most actions"),
        ({"plan_lengths": [0, 3]}, r"`plan_lengths` is \(0, 3\): give the fewest"),
        ({"plan_lengths": [6, 3]}, r"`plan_lengths` is \[6, 3\]: give the smaller number first"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        TextCraft(**options)


@pytest.mark.parametrize(
    ("environment", "split", "message"),
    [
        (TextCraft(), "validation", "no split 'validation': it has train, test, all"),
        (TextCraft(plan_lengths=(49, 60)), "all", "0 goals match .* but 1 are needed: allow more"),
        (TextCraft(depths=(4,), num_goals=12), "all", "11 goals match .* but 12 are needed"),
        (TextCraft(num_goals=1), "test", "leave 1 goals, too few for the split 'test'.*instances"),
    ],
)
def test_splits_that_cannot_be(environment, split, message):
    with pytest.raises(ValueError, match=message):
        environment.tasks(split)


@pytest.mark.parametrize(
    ("task", "goal", "instance"),
    [
        (Task(id="textcraft_12"), 12, 0),
        (Task(id="textcraft_12-3"), 12, 3),
        (Task(id="textcraft_556"), 12, 0),  # 544 + 12
        (Task(id="mine", data={"item": 12}), 12, 0),
        (Task(id="textcraft_5", data={"item": 12, "instance": 3}), 12, 3),
        (Task(id="mine", data={"goal": BOOK.goals[12], "instance": 3}), 12, 3),
        (Task(id="mine", data={"goal": "minecraft:" + BOOK.goals[12].replace(" ", "_")}), 12, 0),
    ],
)
def test_what_a_task_may_say(task, goal, instance):
    environment = TextCraft(prompt="short")
    text = run(opening(environment, task))
    assert text.endswith(f"goal {BOOK.goals[goal]}")
    same = Task(id="same", data={"goal": BOOK.goals[goal], "instance": instance})
    assert text == run(opening(environment, same))


@pytest.mark.parametrize(
    "task",
    [
        Task(id="babyai_3"),
        Task(id="textcraft_"),
        Task(id="textcraft_1-"),
        Task(id="textcraft_-1"),
        Task(id="mine", data={"goal": "oak logs"}),  # got, not crafted
        Task(id="mine", data={"goal": 7}),
        Task(id="mine", data={"item": "12"}),
        Task(id="textcraft_1", data={"instance": -1}),
    ],
)
def test_a_task_that_names_nothing(task):
    with pytest.raises(ValueError, match="names no item that can be crafted: write an id such as"):
        run(opening(TextCraft(), task))


def test_ids_of_data_files_become_tasks():
    environment = TextCraft()
    assert environment.task("textcraft_300") == environment.tasks("all")[300]
    assert environment.task("textcraft_844").data == environment.task("textcraft_300").data
    assert environment.task("textcraft_844").id == "textcraft_844"
    assert SMALL.task(SMALL.tasks("train")[5].id) == SMALL.tasks("train")[5]
    with pytest.raises(ValueError, match="names no item"):
        environment.task("sciworld_3")
