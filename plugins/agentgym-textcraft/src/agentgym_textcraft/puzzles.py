"""What a player is shown of a task: the recipes it takes, and distractors, shuffled.

Every choice ranks its candidates by a hash of the task, so that it depends on no order, neither of
files nor of sets, and on no version of Python's random numbers.
"""

import functools
import math

import attrs

from agentgym_core.seeds import derive_seed
from agentgym_textcraft.planning import Plan, plan
from agentgym_textcraft.recipes import Recipe, RecipeBook


@functools.cache
def expert_plan(book: RecipeBook, goal: str) -> Plan | None:
    """The plan from an empty inventory."""
    return plan(book, goal, {})


@attrs.frozen(kw_only=True)
class Puzzles:
    """How tasks are shown. Instance n of a goal is always the same."""

    book: RecipeBook
    num_distractors: int
    alternatives: bool
    """Whether recipes that the expert's plan can do without are shown for certain."""

    def draw(self, goal: str, instance: int) -> tuple[Recipe, ...]:
        """The recipes that an instance of a goal shows, in their order."""
        return _draw(self, goal, instance)

    def count(self, goal: str) -> int:
        """How many different ways there are to show a goal: sets of distractors times orders."""
        useful, others = self.candidates(goal)
        chosen = min(self.num_distractors, len(others))
        return math.comb(len(others), chosen) * math.factorial(len(useful) + chosen)

    def instances(self, goal: str, count: int) -> tuple[int, ...]:
        """The first so many instances of a goal that all look different."""
        assert count <= self.count(goal), "there are not so many"
        return _instances(self, goal, count)

    def candidates(self, goal: str) -> tuple[tuple[Recipe, ...], tuple[Recipe, ...]]:
        """The recipes that are always shown, and those of which distractors are drawn.

        A distractor asks for something that one of the useful recipes asks for.

        Raises:
            ValueError: the goal cannot be made from the recipes of the book.
        """
        return _candidates(self.book, goal, self.alternatives)


@functools.cache
def _candidates(
    book: RecipeBook, goal: str, alternatives: bool
) -> tuple[tuple[Recipe, ...], tuple[Recipe, ...]]:
    found = expert_plan(book, goal)
    if found is None:
        raise ValueError(
            f"{goal} takes a recipe that asks for a kind of item, such as any planks, and "
            "`tags: false` leaves those out: choose another goal or set `tags: true`"
        )
    useful = dict.fromkeys(book.below(goal) if alternatives else found.recipes)
    names = {ingredient.name for recipe in useful for ingredient in recipe.inputs}
    others = {recipe for name in names for recipe in book.uses[name]} - useful.keys()
    return tuple(useful), tuple(sorted(others, key=str))


@functools.cache
def _draw(puzzles: Puzzles, goal: str, instance: int) -> tuple[Recipe, ...]:
    useful, others = puzzles.candidates(goal)

    def rank(purpose: str, recipe: Recipe) -> int:
        return derive_seed("textcraft", purpose, goal, instance, str(recipe))

    drawn = sorted(others, key=lambda recipe: rank("distractor", recipe))
    shown = [*useful, *drawn[: puzzles.num_distractors]]
    return tuple(sorted(shown, key=lambda recipe: rank("order", recipe)))


@functools.cache
def _instances(puzzles: Puzzles, goal: str, count: int) -> tuple[int, ...]:
    found: dict[tuple[Recipe, ...], int] = {}
    instance = 0
    while len(found) < count:
        found.setdefault(puzzles.draw(goal, instance), instance)
        instance += 1
    return tuple(found.values())
