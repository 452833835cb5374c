"""The expert: short plans that work, also from the middle of a muddle."""

import asyncio
import itertools
import math
import random

import pytest

from agentgym_textcraft.environment import TextCraft
from agentgym_textcraft.phrases import MAX_COUNT
from agentgym_textcraft.planning import plan
from agentgym_textcraft.recipe_files import recipe_book

BOOK = recipe_book()


@pytest.mark.parametrize(
    ("goal", "actions"),
    [
        # 8 planks at 4 a craft are two crafts, and so two logs
        (
            "chest",
            [
                "get 2 acacia logs",
                "craft 4 acacia planks using 1 acacia logs",
                "craft 4 acacia planks using 1 acacia logs",
                "craft 1 chest using 8 acacia planks",
            ],
        ),
        # bamboo makes one stick in two actions; planks would make four in three
        (
            "lever",
            [
                "get 2 bamboo",
                "craft 1 stick using 2 bamboo",
                "get 1 cobblestone",
                "craft 1 lever using 1 cobblestone, 1 stick",
            ],
        ),
        # cobblestone enters at two levels, 2 and 1, and is got once
        (
            "andesite",
            [
                "get 2 quartz",
                "get 3 cobblestone",
                "craft 2 diorite using 2 quartz, 2 cobblestone",
                "craft 2 andesite using 1 diorite, 1 cobblestone",
            ],
        ),
    ],
)
def test_plans_by_hand(goal, actions):
    assert list(map(str, plan(BOOK, goal, {}).actions)) == actions


@pytest.mark.parametrize(
    ("inventory", "actions"),
    [
        ({"quartz": 1}, ["get 1 quartz", "get 3 cobblestone", "craft diorite", "craft andesite"]),
        ({"cobblestone": 9}, ["get 2 quartz", "craft diorite", "craft andesite"]),
        ({"diorite": 1}, ["get 1 cobblestone", "craft andesite"]),
        ({"diorite": 3, "cobblestone": 1}, ["craft andesite"]),
        # a first one does not count: the goal has to be crafted now
        ({"andesite": 5, "diorite": 1, "cobblestone": 1}, ["craft andesite"]),
    ],
)
def test_plans_begin_with_what_there_is(inventory, actions):
    found = [
        f"craft {action.item}" if str(action).startswith("craft") else str(action)
        for action in plan(BOOK, "andesite", inventory).actions
    ]
    assert found == actions


def test_no_way_without_kinds():
    assert plan(BOOK.without_kinds, "chest", {}) is None


def fewest_actions(book, goal):
    """By trying every recipe for every item. None if there are too many combinations to try.

    The amounts come from sweeping over the recipes until they stand still, and need no order.
    """
    choices = {}
    for recipe in book.below(goal):
        inputs = itertools.product(*(book.items_for(i) for i in recipe.inputs))
        choices.setdefault(recipe.output.name, []).extend((recipe, items) for items in inputs)
    if math.prod(map(len, choices.values())) > 400:
        return None
    fewest = math.inf
    for combination in itertools.product(*choices.values()):
        chosen = dict(zip(choices, combination, strict=True))
        needs = {goal: 1}
        while True:
            times = {
                item: math.ceil(needs.get(item, 0) / recipe.output.count)
                for item, (recipe, _) in chosen.items()
            }
            found = {goal: 1}
            for item, (recipe, items) in chosen.items():
                for ingredient, name in zip(recipe.inputs, items, strict=True):
                    found[name] = found.get(name, 0) + ingredient.count * times[item]
            if found == needs:
                break
            needs = found
        raw = [item for item, count in needs.items() if count and item not in chosen]
        fewest = min(fewest, len(raw) + sum(times.values()))
    return fewest


def test_plans_are_shortest():
    checked = 0
    for goal in BOOK.goals:
        fewest = fewest_actions(BOOK, goal)
        if fewest is not None:
            assert len(plan(BOOK, goal, {}).actions) == fewest, goal
            checked += 1
    assert checked > 450


def test_no_plan_needs_more_than_a_get_gives():
    most = max(action.count for goal in BOOK.goals for action in plan(BOOK, goal, {}).actions)
    assert most == 324
    assert most <= MAX_COUNT


def test_the_expert_solves_every_task():
    async def play():
        environment = TextCraft()
        session = await environment.open()
        solved = 0
        for task in environment.tasks("all"):
            observation = await session.reset(task, 0)
            steps, reward = 0, 0.0
            while not observation.terminated:
                observation = await session.step(await session.expert_action())
                steps += 1
                reward += observation.reward
            length = len(plan(BOOK, task.data["goal"], {}).actions)
            solved += observation.success and reward == 1.0 and steps == length
        return solved

    assert asyncio.run(play()) == 544


NONSENSE = ["", "dance", "get 3 oak planks", "get oak logs", "craft 1 chest", "get 5 string"]


@pytest.mark.parametrize(
    "options", [{}, {"tags": False}, {"prompt": "short", "alternatives": False}]
)
def test_the_expert_recovers(options):
    """After wrong actions, idle ones, and crafts that waste what was meant for something else."""
    environment = TextCraft(**options)
    tasks = environment.tasks("all")

    async def play(number):
        chance = random.Random(number)
        session = await environment.open()
        observation = await session.reset(chance.choice(tasks), 0)
        length = observation.info["plan_length"]
        for _ in range(chance.randrange(12)):
            available = await session.available_actions()
            expert = await session.expert_action()
            action = chance.choice([chance.choice(available), chance.choice(NONSENSE), expert])
            observation = await session.step(action)
            if observation.terminated:
                return 0
        steps = 0
        while not observation.terminated:
            observation = await session.step(await session.expert_action())
            steps += 1
            # What there is can only save work: it never takes longer than from nothing.
            assert steps <= length
        assert observation.success
        return steps

    assert sum(asyncio.run(play(number)) for number in range(200)) > 500
