"""Options, splits, sessions and determinism."""

import asyncio
import importlib
import os
import random
import re
import subprocess
import sys
from collections import Counter

import attrs
import pytest
from agentgym_textcraft import plugin
from agentgym_textcraft.environment import TextCraft
from agentgym_textcraft.planning import plan
from agentgym_textcraft.recipe_files import recipe_book

from agentgym_core.actions import ActionLine, WholeReply
from agentgym_core.types import Task

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


def words(text):
    """As a word-level tokenizer that splits digits sees them."""
    return re.findall(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]", text)


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
    assert SMALL.action_format == WholeReply()
    assert SMALL.instructions() == ""


def test_the_short_form_is_short():
    async def play():
        session = await SMALL.open()
        for task in SMALL.tasks("train"):
            observation = await session.reset(task, 0)
            lengths["opening"].append(len(words(observation.text)))
            while not observation.terminated:
                action = await session.expert_action()
                observation = await session.step(action)
                lengths["action"].append(len(words(action)))
                lengths["answer"].append(len(words(observation.text)))

    lengths = {"opening": [], "action": [], "answer": []}
    run(play())
    means = {name: sum(values) / len(values) for name, values in lengths.items()}
    assert means["opening"] < 70
    assert means["action"] < 8
    assert means["answer"] < 5
    assert max(lengths["opening"]) < 100


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


def test_available_actions_all_succeed():
    async def play(session, task):
        await session.reset(task, 0)
        chance = random.Random(task.id)
        for _ in range(12):
            actions = await session.available_actions()
            assert len(set(actions)) == len(actions)
            observation = await session.step(chance.choice(actions))
            assert re.match("You (got|crafted|have) ", observation.text)
            if observation.terminated:
                assert await session.available_actions() == ()
                assert await session.expert_action() is None
                return

    async def play_all():
        session = await TextCraft().open()
        for task in TextCraft().tasks("all")[::9]:
            await play(session, task)

    run(play_all())


def test_what_winning_looks_like():
    async def play():
        session = await TextCraft().open()
        goal = "andesite"
        first = await session.reset(Task(id="mine", data={"goal": goal}), 0)
        assert first.info == {"goal": goal, "plan_length": 4}
        seen = [first]
        for action in ("get 2 quartz", "get 3 cobblestone", "craft 2 diorite using 2 quartz, "):
            seen.append(await session.step(action))
        seen.append(await session.step("craft 2 diorite using 2 quartz, 2 cobblestone"))
        for observation in seen:
            assert (observation.reward, observation.terminated, observation.success) == (
                0,
                False,
                False,
            )
        last = await session.step("craft andesite using 1 cobblestone, 1 diorite")
        assert last.text == "You crafted 2 andesite."
        assert (last.reward, last.terminated, last.truncated, last.success) == (
            1,
            True,
            False,
            True,
        )

    run(play())


def test_steps_without_a_task_say_what_to_do():
    async def play():
        session = await TextCraft().open()
        assert await session.expert_action() is None
        assert await session.available_actions() == ()
        with pytest.raises(RuntimeError, match=r"call reset\(task, seed\) before step"):
            await session.step("inventory")
        task = Task(id="mine", data={"goal": "oak planks"})
        await session.reset(task, 0)
        await session.step("get 1 oak logs")
        await session.step("craft 4 oak planks using 1 oak logs")
        with pytest.raises(RuntimeError, match=r"the task is done .* call reset\(task, seed\)"):
            await session.step("inventory")
        await session.reset(task, 0)
        assert (await session.step("inventory")).text == "You have nothing."
        await session.close()
        await session.close()
        with pytest.raises(RuntimeError, match="no task is under way"):
            await session.step("inventory")

    run(play())


def test_sessions_do_not_see_each_other():
    async def play(number):
        environment = TextCraft()
        session = await environment.open()
        observation = await session.reset(environment.task(f"textcraft_{number}"), 0)
        texts = [observation.text]
        while not observation.terminated:
            texts.append((await session.step("inventory")).text)
            await asyncio.sleep(0)  # the others' turn
            observation = await session.step(await session.expert_action())
            texts.append(observation.text)
        return texts

    async def together():
        return await asyncio.gather(*(play(number) for number in [500, 500, *range(501, 507)]))

    alone = [run(play(number)) for number in [500, 500, *range(501, 507)]]
    assert run(together()) == alone
    assert alone[0] == alone[1]


@pytest.mark.parametrize("environment", [SMALL, attrs.evolve(SMALL, prompt="long")])
def test_the_corpus_holds_every_word(environment):
    """Of what is shown, done, and answered to babble made of the same words."""
    known = {word for text in environment.corpus() for word in words(text)}
    vocabulary = sorted(word for word in known if word == word.lower())
    chance = random.Random(0)
    heard = set()

    def babble():
        verb = chance.choice(["get", "get 1", "craft", "craft 4", ""])
        return " ".join([verb, *chance.choices(vocabulary, k=chance.randrange(6))])

    async def play(task):
        session = await environment.open()
        observation = await session.reset(task, 0)
        heard.update(words(observation.text))
        for _ in range(20):
            expert = await session.expert_action()
            others = await session.available_actions()
            using = f"{expert} using {babble()}"
            action = chance.choice([expert, chance.choice(others), babble(), using])
            observation = await session.step(action)
            heard.update(words(observation.text), words(expert), *map(words, others))
            if observation.terminated:
                return

    async def play_all():
        for task in environment.tasks("all"):
            await play(task)

    run(play_all())
    assert heard <= known
    for thought in (False, True):
        assert known.issuperset(words(environment.action_format.instructions(thought)))
    assert known.issuperset("0123456789")
    # The world's 676 names make more than 300 words; those of forty goals far fewer.
    assert len({word for text in SMALL.corpus() for word in words(text)}) < 300


FINGERPRINT = """
import asyncio, hashlib
from agentgym_textcraft.environment import TextCraft

async def main():
    digest = hashlib.sha256()
    for options in (
        {},
        {"prompt": "short", "tags": False, "plan_lengths": [3, 6], "num_goals": 40},
        {"held_out": "instances", "train_instances": 3, "alternatives": False, "depths": [3, 4]},
    ):
        environment = TextCraft(**options)
        session = await environment.open()
        for split in ("train", "test", "all"):
            digest.update(repr(environment.tasks(split)).encode())
        digest.update("".join(environment.corpus()).encode())
        for task in environment.tasks("all")[::3]:
            observation = await session.reset(task, 0)
            digest.update(observation.text.encode())
            while not observation.terminated:
                digest.update(repr(await session.available_actions()).encode())
                observation = await session.step(await session.expert_action())
                digest.update(observation.text.encode())
    print(digest.hexdigest())

asyncio.run(main())
"""


def test_the_same_under_every_hash_seed():
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(found) == 1


def test_the_seed_of_an_episode_changes_nothing():
    task = TextCraft().task("textcraft_300")
    assert run(opening(TextCraft(), task, 0)) == run(opening(TextCraft(), task, 99))
