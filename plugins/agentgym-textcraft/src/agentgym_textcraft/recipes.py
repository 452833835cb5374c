"""The recipe tree: which items there are, and how each is made.

Items go by the words that a player reads: "oak planks" for `minecraft:oak_planks`.
"""

import functools
from collections.abc import Mapping

import attrs


@attrs.frozen
class Ingredient:
    """Some of an item, or of any one item of a kind (what Minecraft calls a tag)."""

    count: int
    name: str
    is_kind: bool = False

    def __str__(self) -> str:
        return f"{self.count} {self.name}"


@attrs.frozen
class Recipe:
    """One way to craft an item.

    Example: str(recipe) == "craft 3 oak sign using 6 oak planks, 1 stick"
    """

    output: Ingredient
    inputs: tuple[Ingredient, ...]

    @property
    def uses_kind(self) -> bool:
        """Whether an input may be any item of a kind."""
        return any(ingredient.is_kind for ingredient in self.inputs)

    def __str__(self) -> str:
        return f"craft {self.output} using {', '.join(map(str, self.inputs))}"


@attrs.frozen(eq=False, kw_only=True)
class RecipeBook:
    """Every recipe, and every name that means something."""

    recipes: Mapping[str, tuple[Recipe, ...]]
    """By output, in the order of their files. An item with an entry is crafted, never got."""
    items: frozenset[str]
    kinds: Mapping[str, tuple[str, ...]]
    """The items of each kind: planks are oak planks, birch planks, …"""
    depths: Mapping[str, int]
    """Fewest layers of crafting below an item or kind: 0 for what is got. The shallowest recipe
    counts, and in it the deepest ingredient."""
    heights: Mapping[str, int]
    """Most layers of crafting below an item or kind: greater than the height of any ingredient."""

    @functools.cached_property
    def goals(self) -> tuple[str, ...]:
        """The craftable items in AgentGym's order: by depth, else in the order of their files."""
        return tuple(sorted(self.recipes, key=self.depths.__getitem__))

    @functools.cached_property
    def uses(self) -> Mapping[str, tuple[Recipe, ...]]:
        """The recipes that ask for a name."""
        uses: dict[str, list[Recipe]] = {}
        for recipes in self.recipes.values():
            for recipe in recipes:
                for ingredient in recipe.inputs:
                    uses.setdefault(ingredient.name, []).append(recipe)
        return {name: tuple(recipes) for name, recipes in uses.items()}

    @functools.cached_property
    def longest_name(self) -> int:
        """Most words in the name of an item or kind."""
        return max(len(name.split()) for name in (*self.items, *self.kinds))

    def is_raw(self, name: str) -> bool:
        """Whether `get` gives it."""
        return name in self.items and name not in self.recipes

    def items_for(self, ingredient: Ingredient) -> tuple[str, ...]:
        """The items that an ingredient may be: one, or all of its kind."""
        return self.kinds[ingredient.name] if ingredient.is_kind else (ingredient.name,)

    def below(self, goal: str) -> tuple[Recipe, ...]:
        """The recipes that can have a part in making the goal, its own first."""
        found: dict[Recipe, None] = {}
        names = dict.fromkeys([goal])
        waiting = [goal]
        while waiting:
            name = waiting.pop(0)
            recipes = self.recipes.get(name, ())
            found.update(dict.fromkeys(recipes))
            below = [i.name for recipe in recipes for i in recipe.inputs]
            for other in (*below, *self.kinds.get(name, ())):
                if other not in names:
                    names[other] = None
                    waiting.append(other)
        return tuple(found)

    @functools.cached_property
    def without_kinds(self) -> "RecipeBook":
        """The same world, of whose recipes only those are shown that need no choice of an item.

        What cannot be made from such recipes alone keeps an empty entry: it cannot be got either.
        """
        kept: dict[str, tuple[Recipe, ...]] = {}
        for item in sorted(self.recipes, key=self.heights.__getitem__):
            kept[item] = tuple(
                recipe
                for recipe in self.recipes[item]
                if not recipe.uses_kind
                and all(self.is_raw(i.name) or kept[i.name] for i in recipe.inputs)
            )
        return attrs.evolve(self, recipes={item: kept[item] for item in self.recipes})
