"""The expert: the fewest actions from an inventory to a goal."""

import itertools
import math
from collections.abc import Iterator, Mapping

import attrs

from agentgym_textcraft.commands import Craft, Get, Items
from agentgym_textcraft.recipes import Recipe, RecipeBook

Counts = Mapping[str, int]


@attrs.frozen
class Job:
    """One recipe, crafted so many times with these items."""

    recipe: Recipe
    items: Items
    """The recipe's inputs, an item of each kind chosen."""
    times: int


@attrs.frozen
class Plan:
    """What an expert would do."""

    actions: tuple[Get | Craft, ...]
    recipes: tuple[Recipe, ...]


def plan(book: RecipeBook, goal: str, inventory: Counts) -> Plan | None:
    """Return how to make one of the goal, or None if the book has no way to.

    What is raw is got once, in the whole amount, just before it is first used. There is no shorter
    plan that keeps to one recipe for each item.
    """
    stock = {item: count for item, count in inventory.items() if item != goal}
    search = _Search(book=book, stock=stock)
    search.visit({goal: 1}, ())
    if search.jobs is None:
        return None
    actions = _actions(book, search.jobs, stock)
    return Plan(actions, tuple(job.recipe for job in search.jobs))


def _actions(book: RecipeBook, jobs: tuple[Job, ...], stock: Counts) -> tuple[Get | Craft, ...]:
    total: dict[str, int] = {}
    for job in jobs:
        for count, item in job.items:
            total[item] = total.get(item, 0) + count * job.times
    actions: list[Get | Craft] = []
    got: set[str] = set()
    for job in reversed(jobs):  # what lies lowest comes first
        for _, item in job.items:
            missing = total[item] - stock.get(item, 0)
            if book.is_raw(item) and missing > 0 and item not in got:
                actions.append(Get(missing, item))
                got.add(item)
        craft = Craft(job.recipe.output.count, job.recipe.output.name, job.items)
        actions.extend([craft] * job.times)
    return tuple(actions)


@attrs.define
class _Search:
    """Depth-first branch and bound over the recipe and the items of each craft.

    The item of greatest height is settled first: nothing that is settled later asks for it, so its
    whole amount is known.
    """

    book: RecipeBook
    stock: Counts
    jobs: tuple[Job, ...] | None = None
    cost: float = math.inf

    def visit(self, needs: dict[str, int], jobs: tuple[Job, ...]) -> None:
        missing = {
            item: count - self.stock.get(item, 0)
            for item, count in needs.items()
            if count > self.stock.get(item, 0)
        }
        pending = [item for item in missing if not self.book.is_raw(item)]
        cost = sum(job.times for job in jobs) + len(missing) - len(pending)
        cost += sum(self._fewest_crafts(item, missing[item]) for item in pending)
        if cost >= self.cost:
            return
        if not pending:
            self.jobs, self.cost = jobs, cost
            return
        item = max(pending, key=lambda item: (self.book.heights[item], item))
        rest = {name: count for name, count in needs.items() if name != item}
        for job in self._jobs(item, missing[item]):
            below = dict(rest)
            for count, name in job.items:
                below[name] = below.get(name, 0) + count * job.times
            self.visit(below, (*jobs, job))

    def _fewest_crafts(self, item: str, count: int) -> float:
        recipes = self.book.recipes[item]
        return min((math.ceil(count / r.output.count) for r in recipes), default=math.inf)

    def _jobs(self, item: str, count: int) -> Iterator[Job]:
        for recipe in self.book.recipes[item]:
            times = math.ceil(count / recipe.output.count)
            choices = [
                [(ingredient.count, item) for item in self.book.items_for(ingredient)]
                for ingredient in recipe.inputs
            ]
            for items in itertools.product(*choices):
                yield Job(recipe, items, times)
