"""The recipe tree, against facts read off the files and a slow computation of its own."""

import math
import random
from collections import Counter

import pytest

from agentgym_textcraft.recipe_files import read_recipe_book, recipe_book, recipe_folder, to_name
from agentgym_textcraft.recipes import Ingredient, Recipe

BOOK = recipe_book()


def test_measured_sizes():
    assert len(BOOK.recipes) == 544
    assert sum(len(recipes) for recipes in BOOK.recipes.values()) == 613
    assert len(BOOK.items) == 676
    assert len(BOOK.kinds) == 23
    assert Counter(BOOK.depths[goal] for goal in BOOK.goals) == {1: 125, 2: 291, 3: 117, 4: 11}


@pytest.mark.parametrize(
    ("item", "recipes"),
    [
        # pattern "# #", "###" of acacia planks
        ("acacia boat", ["craft 1 acacia boat using 5 acacia planks"]),
        # three times paper and once leather, in a list
        ("book", ["craft 1 book using 3 paper, 1 leather"]),
        # "###", "#X#", "###": eight sticks around any wool
        ("painting", ["craft 1 painting using 8 stick, 1 wool"]),
        # from the tag oak_logs, which nothing crafts and which is therefore an item
        ("oak planks", ["craft 4 oak planks using 1 oak logs"]),
    ],
)
def test_recipes_read_off_their_files(item, recipes):
    assert list(map(str, BOOK.recipes[item])) == recipes


def test_kinds():
    assert BOOK.recipes["painting"] == (
        Recipe(
            Ingredient(1, "painting"), (Ingredient(8, "stick"), Ingredient(1, "wool", is_kind=True))
        ),
    )
    woods = ("acacia", "birch", "crimson", "dark oak", "jungle", "oak", "spruce", "warped")
    assert BOOK.kinds["planks"] == tuple(f"{wood} planks" for wood in woods)
    used = Counter(
        i.name for recipes in BOOK.recipes.values() for r in recipes for i in r.inputs if i.is_kind
    )
    assert used == {"planks": 38, "wool": 1}


def test_what_is_got_and_what_is_crafted():
    raw = {item for item in BOOK.items if BOOK.is_raw(item)}
    assert len(raw) == 676 - 544
    assert raw.isdisjoint(BOOK.recipes)
    assert not any(BOOK.is_raw(kind) for kind in BOOK.kinds)


@pytest.mark.parametrize(("choose", "layers"), [(min, "depths"), (max, "heights")])
def test_layers_against_a_fixpoint(choose, layers):
    """Sweep over all recipes from a guess until nothing changes, in place of recursion."""
    start = math.inf if choose is min else 0
    found = dict.fromkeys([*BOOK.recipes, *BOOK.kinds], start)
    changed = True
    while changed:
        before = dict(found)
        for kind, items in BOOK.kinds.items():
            found[kind] = choose(found.get(item, 0) for item in items)
        for item, recipes in BOOK.recipes.items():
            found[item] = choose(1 + max(found.get(i.name, 0) for i in r.inputs) for r in recipes)
        changed = found != before
    assert found == getattr(BOOK, layers)


def test_goals_are_sorted_by_depth_and_then_by_file():
    depths = [BOOK.depths[goal] for goal in BOOK.goals]
    assert depths == sorted(depths)
    assert BOOK.goals[:3] == ("acacia planks", "acacia wood", "beacon")
    assert BOOK.goals[124:126] == ("yellow dye", "acacia boat")
    assert (BOOK.goals[416], BOOK.goals[533], BOOK.goals[543]) == (
        "activator rail",
        "cyan banner",
        "purple banner",
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_files_does_not_matter(seed):
    files = list(recipe_folder().glob("*.json"))
    assert len(files) == 860
    random.Random(seed).shuffle(files)
    book = read_recipe_book(files)
    assert list(book.recipes.items()) == list(BOOK.recipes.items())
    assert (book.items, book.kinds, book.goals) == (BOOK.items, BOOK.kinds, BOOK.goals)


def test_below_holds_the_goals_recipes_and_those_of_every_ingredient():
    assert list(map(str, BOOK.below("oak boat"))) == [
        "craft 1 oak boat using 5 oak planks",
        "craft 4 oak planks using 1 oak logs",
    ]
    # any planks: the chest, and a recipe for each of the eight kinds of planks
    assert len(BOOK.below("chest")) == 9


def test_without_kinds():
    """What is left can be made from what is left; only goals that need a kind are lost."""
    plain = BOOK.without_kinds
    assert plain.recipes["chest"] == ()
    assert plain.recipes["oak boat"] == BOOK.recipes["oak boat"]
    for recipe in (recipe for recipes in plain.recipes.values() for recipe in recipes):
        assert not any(ingredient.is_kind for ingredient in recipe.inputs)
        assert all(BOOK.is_raw(i.name) or plain.recipes[i.name] for i in recipe.inputs)
    # a stick can be made of planks, of any kind, or of bamboo
    assert list(map(str, plain.recipes["stick"])) == ["craft 1 stick using 2 bamboo"]
    assert sum(1 for recipes in plain.recipes.values() if not recipes) == 49


def test_names():
    assert to_name("minecraft:dark_oak_planks") == "dark oak planks"
    assert to_name("oak planks") == "oak planks"
