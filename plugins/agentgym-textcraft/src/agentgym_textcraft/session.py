"""One game of TextCraft."""

from collections.abc import Sequence

import attrs

from agentgym_core.protocols import Session
from agentgym_core.types import Observation, Task
from agentgym_textcraft.commands import Command, CommandReader, Craft, Get, Inventory, Refusal
from agentgym_textcraft.phrases import Phrases
from agentgym_textcraft.planning import plan
from agentgym_textcraft.puzzles import Puzzles, expert_plan
from agentgym_textcraft.recipe_files import recipe_book
from agentgym_textcraft.recipes import Recipe
from agentgym_textcraft.table import CraftingTable
from agentgym_textcraft.tasks import read_task


@attrs.define
class Game:
    """A task under way."""

    goal: str
    shown: tuple[Recipe, ...]
    table: CraftingTable
    reader: CommandReader
    plan: Sequence[Command]
    """What an expert would do from here; empty if it has to be thought through again."""
    won: bool = False


@attrs.define
class TextCraftSession(Session):
    """One player at one crafting table."""

    puzzles: Puzzles
    phrases: Phrases
    _game: Game | None = attrs.field(default=None, init=False)

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin a task. The task alone decides what is shown: nothing here is left to chance.

        Raises:
            ValueError: the task names no craftable item, or one that the options leave out.
        """
        del seed
        book = recipe_book()
        goal, instance = read_task(book, task)
        shown = self.puzzles.draw(goal, instance)
        names = {i.name for recipe in shown for i in (recipe.output, *recipe.inputs)}
        expert = expert_plan(self.puzzles.book, goal)
        assert expert is not None, "a goal that cannot be made is not drawn"
        self._game = Game(
            goal=goal,
            shown=shown,
            table=CraftingTable(book, self.phrases, shown),
            reader=CommandReader(book, self.phrases, tuple(sorted(names))),
            plan=expert.actions,
        )
        recipes = "\n".join(map(str, shown))
        opening = self.phrases.opening.format(recipes=recipes, goal=goal)
        info = {"goal": goal, "plan_length": len(expert.actions)}
        return Observation(messages=opening, info=info)

    async def step(self, action: str) -> Observation:
        """Carry out one command. One that cannot be is answered with the reason.

        Raises:
            RuntimeError: there is no task under way.
        """
        game = self._game
        if game is None:
            raise RuntimeError("no task is under way: call reset(task, seed) before step(action)")
        if game.won:
            raise RuntimeError(
                "the task is done and nothing can follow: call reset(task, seed) to begin another"
            )
        try:
            command = game.reader.read(action)
            answer = game.table.do(command)
        except Refusal as refusal:
            return Observation(messages=str(refusal))
        if not isinstance(command, Inventory):
            followed = game.plan[:1] == (command,)
            game.plan = game.plan[1:] if followed else ()
        game.won = isinstance(command, Craft) and command.item == game.goal
        return Observation(
            messages=answer,
            reward=float(game.won),
            terminated=game.won,
            success=game.won,
        )

    async def available_actions(self) -> Sequence[str]:
        """Commands that would succeed: what the recipes shown ask for, what they make, `inventory`.

        An amount is what one recipe asks for; recipes whose ingredients are missing are left out.
        """
        game = self._game
        if game is None or game.won:
            return ()
        gets = (
            Get(ingredient.count, ingredient.name)
            for recipe in game.shown
            for ingredient in recipe.inputs
            if game.table.book.is_raw(ingredient.name)
        )
        crafts = filter(None, map(game.table.craftable, game.shown))
        return tuple(dict.fromkeys(map(str, (*gets, *crafts, Inventory()))))

    async def expert_action(self) -> str | None:
        """Next action of a shortest plan from the inventory as it is; None if no task is on."""
        game = self._game
        if game is None or game.won:
            return None
        if not game.plan:
            found = plan(self.puzzles.book, game.goal, game.table.inventory)
            assert found is not None, "a goal that cannot be made is not drawn"
            game.plan = found.actions
        return str(game.plan[0])

    async def close(self) -> None:
        """Forget the task."""
        self._game = None
