"""Everything the world says, in a long form for language models and a short one for tiny models."""

import re
from collections.abc import Iterable

import attrs

INSTRUCTIONS = """\
In this world items are crafted from other items by fixed recipes. You begin with nothing. You are \
shown some recipes, in no order, and a goal: the item to craft. Some of the recipes may be of no \
use for it.

Each turn you give one command. There are three:
- get N ITEM: take N of an item that no recipe makes, up to 1000 at once.
  Example: get 2 oak logs
- craft N ITEM using N ITEM, N ITEM: follow a recipe once, with exactly the counts that it shows. \
To have more, craft again. The ingredients are used up.
  Example: craft 4 oak planks using 1 oak logs
- inventory: list what you have.

An item that a recipe makes cannot be got: craft it. Where a recipe asks for a kind of item, such \
as planks, use one item of that kind, such as oak planks. You are done once you have crafted the \
goal."""


@attrs.frozen(kw_only=True)
class Phrases:
    """One form of speech: a template for every answer."""

    opening: str
    got: str
    crafted: str
    inventory: str
    nothing: str
    not_a_command: str
    several_commands: str
    no_count: str
    bad_count: str
    no_item: str
    unknown_item: str
    did_you_mean: str
    kind: str
    example: str
    must_craft: str
    must_get: str
    no_inputs: str
    no_recipe: str
    wrong_count: str
    recipe: str
    not_enough: str
    missing: str

    def templates(self) -> Iterable[str]:
        """Every template, its place holders left out."""
        for template in attrs.astuple(self):
            yield _PLACE_HOLDER.sub(" ", template)


_PLACE_HOLDER = re.compile(r"\{\w+\}")

MAX_COUNT = 1000
"""Most items that one `get` gives: more than any plan needs (324)."""

LONG = Phrases(
    opening="These recipes are known:\n{recipes}\n\nYour goal: craft {goal}.",
    got="You got {item}.",
    crafted="You crafted {item}.",
    inventory="You have {items}.",
    nothing="You have nothing.",
    not_a_command=(
        "That is no command. Write `get N ITEM`, `craft N ITEM using N ITEM, N ITEM` or "
        "`inventory`."
    ),
    several_commands="That was more than one command. Give one at a time; nothing was done.",
    no_count="Say how many, with a number before each item, as in `get 1 stick`.",
    bad_count=f"Counts are whole numbers from 1 to {MAX_COUNT}.",
    no_item="Name an item after the number, as in `get 1 stick`.",
    unknown_item="There is no item called '{item}'.",
    did_you_mean=" Did you mean {item}?",
    kind="'{item}' is a kind of item: name one item of that kind.",
    example=" For example: {item}",
    must_craft="{item} cannot be got, only crafted.",
    must_get="No recipe makes {item}. Get it: get 1 {item}",
    no_inputs="Name the ingredients after `using`, as in `craft 4 oak planks using 1 oak logs`.",
    no_recipe="No recipe makes {item} from {items}.",
    wrong_count="That recipe makes {count} {item} at a time, neither more nor less.",
    recipe=" The recipe: {recipe}",
    not_enough="Not enough ingredients: this takes {missing}.",
    missing="{count} {item} (you have {has})",
)

SHORT = Phrases(
    opening="{recipes}\ngoal {goal}",
    got="got {item}",
    crafted="crafted {item}",
    inventory="have {items}",
    nothing="have nothing",
    not_a_command="get, craft or inventory",
    several_commands="one command only",
    no_count="how many",
    bad_count=f"1 to {MAX_COUNT} only",
    no_item="which item",
    unknown_item="no such item",
    did_you_mean="",
    kind="which {item}",
    example="",
    must_craft="craft {item}",
    must_get="get {item}",
    no_inputs="using what",
    no_recipe="no recipe",
    wrong_count="makes {count}",
    recipe="",
    not_enough="need {missing}",
    missing="{count} {item} have {has}",
)
