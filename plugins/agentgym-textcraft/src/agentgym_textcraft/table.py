"""The crafting table: an inventory, and what each command does to it."""

import attrs

from agentgym_textcraft.commands import Command, Craft, Get, Items, Refusal, listed
from agentgym_textcraft.phrases import Phrases
from agentgym_textcraft.recipes import Recipe, RecipeBook


@attrs.define
class CraftingTable:
    """Carries out commands, or says why not. All recipes work, also those that are not shown.

    A refusal leaves the inventory as it was.
    """

    book: RecipeBook
    phrases: Phrases
    shown: tuple[Recipe, ...]
    inventory: dict[str, int] = attrs.field(factory=dict)

    def do(self, command: Command) -> str:
        """Return the answer.

        Raises:
            Refusal: it cannot be done, and nothing was.
        """
        match command:
            case Get():
                return self._get(command)
            case Craft():
                return self._craft(command)
            case _:
                items = tuple((count, item) for item, count in self.inventory.items())
                if not items:
                    return self.phrases.nothing
                return self.phrases.inventory.format(items=listed(items))

    def craftable(self, recipe: Recipe) -> Craft | None:
        """The command that follows a recipe with what there is; None if something is missing."""
        inputs: list[tuple[int, str]] = []
        for ingredient in recipe.inputs:
            items = self.book.items_for(ingredient)
            enough = [item for item in items if self.inventory.get(item, 0) >= ingredient.count]
            if not enough:
                return None
            inputs.append((ingredient.count, enough[0]))
        return Craft(recipe.output.count, recipe.output.name, tuple(inputs))

    def _get(self, command: Get) -> str:
        if not self.book.is_raw(command.item):
            answer = self.phrases.must_craft.format(item=command.item)
            raise Refusal(answer + self._recipe_for(command.item))
        self._add(command.item, command.count)
        return self.phrases.got.format(item=f"{command.count} {command.item}")

    def _craft(self, command: Craft) -> str:
        recipe = self._find(command)
        count = recipe.output.count
        if command.count not in (None, count):
            raise Refusal(self.phrases.wrong_count.format(count=count, item=command.item))
        missing = [
            self.phrases.missing.format(count=number, item=item, has=self.inventory.get(item, 0))
            for number, item in command.inputs
            if self.inventory.get(item, 0) < number
        ]
        if missing:
            raise Refusal(self.phrases.not_enough.format(missing=", ".join(missing)))
        for number, item in command.inputs:
            self._add(item, -number)
        self._add(command.item, count)
        return self.phrases.crafted.format(item=str(recipe.output))

    def _find(self, command: Craft) -> Recipe:
        """The recipe that takes exactly the command's ingredients."""
        if self.book.is_raw(command.item):
            raise Refusal(self.phrases.must_get.format(item=command.item))
        for recipe in self.book.recipes[command.item]:
            if self._takes(recipe, command.inputs):
                return recipe
        answer = self.phrases.no_recipe.format(item=command.item, items=listed(command.inputs))
        raise Refusal(answer + self._recipe_for(command.item))

    def _takes(self, recipe: Recipe, inputs: Items) -> bool:
        open_inputs = list(inputs)
        for ingredient in recipe.inputs:
            items = self.book.items_for(ingredient)
            fitting = [i for i in open_inputs if i[0] == ingredient.count and i[1] in items]
            if not fitting:
                return False
            open_inputs.remove(fitting[0])
        return not open_inputs

    def _recipe_for(self, item: str) -> str:
        """A reminder of the recipe, if the player was shown one."""
        for recipe in self.shown:
            if recipe.output.name == item:
                return self.phrases.recipe.format(recipe=recipe)
        return ""

    def _add(self, item: str, count: int) -> None:
        self.inventory[item] = self.inventory.get(item, 0) + count
        if not self.inventory[item]:
            del self.inventory[item]
