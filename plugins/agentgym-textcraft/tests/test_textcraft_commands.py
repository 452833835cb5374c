"""What is understood as a command, and how everything else is answered."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_textcraft.commands import CommandReader, Craft, Get, Inventory, Refusal
from agentgym_textcraft.phrases import LONG, MAX_COUNT, SHORT
from agentgym_textcraft.recipe_files import recipe_book
from agentgym_textcraft.table import CraftingTable

BOOK = recipe_book()
READER = CommandReader(BOOK, LONG, ("acacia planks", "chest", "oak logs", "oak planks"))
PLANKS = Craft(4, "oak planks", ((1, "oak logs"),))
SIGN = Craft(3, "oak sign", ((6, "oak planks"), (1, "stick")))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("get 2 oak logs", Get(2, "oak logs")),
        ("get 2 oak_logs", Get(2, "oak logs")),
        ("get 2 oak-logs", Get(2, "oak logs")),
        ("get 2 minecraft:oak_logs", Get(2, "oak logs")),
        ("GET 2 Oak Logs", Get(2, "oak logs")),
        ("  get   2  oak   logs ", Get(2, "oak logs")),
        ("get 02 oak logs", Get(2, "oak logs")),
        ("get 1 2 oak logs", Get(12, "oak logs")),  # digits as a word-level tokenizer joins them
        ("get\u00a02 oak logs", Get(2, "oak logs")),  # a space that does not break
        ("get 2 oak logs.", Get(2, "oak logs")),
        ("`get 2 oak logs`", Get(2, "oak logs")),
        ("> get 2 oak logs", Get(2, "oak logs")),
        ("get 2 oak logs, because planks are made of them", Get(2, "oak logs")),
        ("get 2 oak logs to craft 4 oak planks", Get(2, "oak logs")),
        ("get 2 oak logs\nThen I will craft planks.", Get(2, "oak logs")),
        ("get 2 oak logs (I have 1 stick)", Get(2, "oak logs")),
        ("get 1000 string", Get(1000, "string")),
        ("get 1 oak log", Get(1, "oak log")),  # another item than oak logs
        ("craft 4 oak planks using 1 oak logs", PLANKS),
        ("Craft 4 Oak_Planks Using 1 minecraft:oak_logs!", PLANKS),
        ("craft oak planks using 1 oak logs", Craft(None, "oak planks", ((1, "oak logs"),))),
        ("craft 4 oak planks (the goal) using 1 oak logs", PLANKS),
        ("craft 4 oak planks using 1 oak logs, then make a boat", PLANKS),
        ("craft 3 oak sign using 6 oak planks, 1 stick", SIGN),
        ("craft 3 oak sign using 6 oak planks,1 stick", SIGN),
        ("craft 3 oak sign using 6 oak planks and 1 stick", SIGN),
        ("craft 3 oak sign using 6 oak planks, and 1 stick.", SIGN),
        ("craft 3 oak sign using 6 oak planks 1 stick", SIGN),
        ("craft 3 oak sign using 2 oak planks, 1 stick, 4 oak planks", SIGN),
        (
            "craft 1 tripwire hook using 1 flint and steel",
            Craft(1, "tripwire hook", ((1, "flint and steel"),)),
        ),
        ("inventory", Inventory()),
        ("Inventory.", Inventory()),
        ("inventory please", Inventory()),
    ],
)
def test_understood(text, command):
    assert READER.read(text) == command


@pytest.mark.parametrize("command", [Get(2, "oak logs"), PLANKS, SIGN, Inventory()])
def test_a_command_reads_as_itself(command):
    assert READER.read(str(command)) == command


ONE_AT_A_TIME = "That was more than one command. Give one at a time; nothing was done."
HOW_MANY = "Say how many, with a number before each item, as in `get 1 stick`."
RANGE = "Counts are whole numbers from 1 to 1000."
NO_COMMAND = "That is no command. Write `get N ITEM`, `craft N ITEM using N ITEM, N ITEM` or "
INGREDIENTS = "Name the ingredients after `using`, as in `craft 4 oak planks using 1 oak logs`."


@pytest.mark.parametrize(
    ("text", "long", "short"),
    [
        ("", NO_COMMAND + "`inventory`.", "get, craft or inventory"),
        ("go north", NO_COMMAND + "`inventory`.", "get, craft or inventory"),
        ("I get 2 oak logs", NO_COMMAND + "`inventory`.", "get, craft or inventory"),
        ("getting 2 oak logs", NO_COMMAND + "`inventory`.", "get, craft or inventory"),
        ("²", NO_COMMAND + "`inventory`.", "get, craft or inventory"),
        ("\ud800 \x00", NO_COMMAND + "`inventory`.", "get, craft or inventory"),
        ("get 2 oak logs\nget 1 stick", ONE_AT_A_TIME, "one command only"),
        ("get 2 oak logs get 1 stick", ONE_AT_A_TIME, "one command only"),
        ("get 2 oak logs, then craft 4 oak planks", ONE_AT_A_TIME, "one command only"),
        ("get 2 oak logs, 1 string", ONE_AT_A_TIME, "one command only"),
        ("get 2 oak logs. inventory", ONE_AT_A_TIME, "one command only"),
        (f"{PLANKS}\n{PLANKS}", ONE_AT_A_TIME, "one command only"),
        ("craft 4 oak planks. craft 1 x using 1 y", ONE_AT_A_TIME, "one command only"),
        ("get oak logs", HOW_MANY, "how many"),
        ("get two oak logs", HOW_MANY, "how many"),
        ("get", HOW_MANY, "how many"),
        ("craft 4 oak planks using oak logs", HOW_MANY, "how many"),
        ("get 0 oak logs", RANGE, "1 to 1000 only"),
        ("get -1 oak logs", RANGE, "1 to 1000 only"),
        ("get 1.5 oak logs", RANGE, "1 to 1000 only"),
        ("get 1001 oak logs", RANGE, "1 to 1000 only"),
        (f"get {'9' * 5000} oak logs", RANGE, "1 to 1000 only"),
        ("get 2", "Name an item after the number, as in `get 1 stick`.", "which item"),
        ("get 2, please", "Name an item after the number, as in `get 1 stick`.", "which item"),
        ("get 2 unobtainium", "There is no item called 'unobtainium'.", "no such item"),
        (
            "get 2 oak plank",
            "There is no item called 'oak plank'. Did you mean oak planks?",
            "no such item",
        ),
        (
            "craft 4 oak planks thing using 1 oak logs",
            "There is no item called 'oak planks thing'. Did you mean oak planks?",
            "no such item",
        ),
        (
            "get 2 planks",
            "'planks' is a kind of item: name one item of that kind. For example: acacia planks",
            "which planks",
        ),
        (
            "craft 1 painting using 8 stick, 1 wool",  # no wool was shown
            "'wool' is a kind of item: name one item of that kind.",
            "which wool",
        ),
        ("craft 4 oak planks", INGREDIENTS, "using what"),
        ("craft 4 oak planks using", INGREDIENTS, "using what"),
        ("craft", INGREDIENTS, "using what"),
    ],
)
def test_refused_as_said(text, long, short):
    for phrases, answer in ((LONG, long), (SHORT, short)):
        with pytest.raises(Refusal) as refusal:
            CommandReader(BOOK, phrases, READER.nearby).read(text)
        assert str(refusal.value) == answer


@pytest.mark.parametrize(
    ("text", "long", "short"),
    [
        (
            "get 4 oak planks",
            "oak planks cannot be got, only crafted. "
            "The recipe: craft 4 oak planks using 1 oak logs",
            "craft oak planks",
        ),
        ("get 1 bread", "bread cannot be got, only crafted.", "craft bread"),  # was not shown
        (
            "craft 1 oak logs using 4 oak planks",
            "No recipe makes oak logs. Get it: get 1 oak logs",
            "get oak logs",
        ),
        (
            "craft 4 oak planks using 1 birch logs",
            "No recipe makes oak planks from 1 birch logs. "
            "The recipe: craft 4 oak planks using 1 oak logs",
            "no recipe",
        ),
        (
            "craft 8 oak planks using 2 oak logs",
            "No recipe makes oak planks from 2 oak logs. "
            "The recipe: craft 4 oak planks using 1 oak logs",
            "no recipe",
        ),
        (
            "craft 1 oak planks using 1 oak logs",
            "That recipe makes 4 oak planks at a time, neither more nor less.",
            "makes 4",
        ),
        (
            "craft 1 oak boat using 5 oak planks",
            "Not enough ingredients: this takes 5 oak planks (you have 2).",
            "need 5 oak planks have 2",
        ),
        (
            "craft 3 oak sign using 6 oak planks, 1 stick",
            "Not enough ingredients: this takes 6 oak planks (you have 2), 1 stick (you have 0).",
            "need 6 oak planks have 2, 1 stick have 0",
        ),
    ],
)
def test_refused_at_the_table(text, long, short):
    shown = BOOK.below("oak sign")
    for phrases, answer in ((LONG, long), (SHORT, short)):
        table = CraftingTable(BOOK, phrases, shown, {"oak logs": 5, "oak planks": 2})
        with pytest.raises(Refusal) as refusal:
            table.do(CommandReader(BOOK, phrases, ()).read(text))
        assert str(refusal.value) == answer
        assert table.inventory == {"oak logs": 5, "oak planks": 2}


@pytest.mark.parametrize(
    ("text", "long", "short", "after"),
    [
        ("get 2 string", "You got 2 string.", "got 2 string", {"string": 2}),
        (
            "craft 4 oak planks using 1 oak logs",
            "You crafted 4 oak planks.",
            "crafted 4 oak planks",
            {"oak logs": 0, "oak planks": 12},
        ),
        ("craft oak planks using 1 oak logs", "You crafted 4 oak planks.", None, None),
        (
            "craft 1 chest using 8 oak planks",  # any planks
            "You crafted 1 chest.",
            "crafted 1 chest",
            {"oak planks": 0, "chest": 1},
        ),
        (
            "inventory",
            "You have 1 oak logs, 8 oak planks.",
            "have 1 oak logs, 8 oak planks",
            {},
        ),
    ],
)
def test_carried_out(text, long, short, after):
    before = {"oak logs": 1, "oak planks": 8}
    for phrases, answer in ((LONG, long), (SHORT, short)):
        table = CraftingTable(BOOK, phrases, (), dict(before))
        said = table.do(CommandReader(BOOK, phrases, ()).read(text))
        assert answer is None or said == answer
        if after is not None:
            wanted = {item: count for item, count in {**before, **after}.items() if count}
            assert table.inventory == wanted


def test_a_kind_is_filled_by_one_item():
    """Upstream's rule: eight planks of one wood, not four of each of two."""
    table = CraftingTable(BOOK, LONG, (), {"oak planks": 4, "birch planks": 4})
    with pytest.raises(Refusal, match="No recipe makes chest"):
        table.do(READER.read("craft 1 chest using 4 oak planks, 4 birch planks"))


def test_an_empty_inventory():
    assert CraftingTable(BOOK, LONG, ()).do(Inventory()) == "You have nothing."
    assert CraftingTable(BOOK, SHORT, ()).do(Inventory()) == "have nothing"


def test_no_two_recipes_of_an_item_differ_in_the_count_alone():
    """So the ingredients say which recipe is meant, and a wrong count can be put right."""
    for recipes in BOOK.recipes.values():
        counts = {(recipe.inputs, recipe.output.count) for recipe in recipes}
        assert len(counts) == len({recipe.inputs for recipe in recipes})


WORDS = [
    "get",
    "craft",
    "using",
    "inventory",
    "and",
    "then",
    ",",
    ".",
    "\n",
    "-",
    "_",
    "minecraft:",
]
WORDS += ["0", "1", "2", "999999", "oak", "logs", "planks", "stick", "oak planks", "oak logs", "²"]
SPOKEN = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=st.one_of(st.text(max_size=60), SPOKEN))
def test_any_text_is_answered(text):
    table = CraftingTable(BOOK, LONG, BOOK.below("chest"))
    try:
        command = READER.read(text)
        answer = table.do(command)
    except Refusal as refusal:
        answer = str(refusal)
    assert answer
    assert all(0 < count <= MAX_COUNT for count in table.inventory.values())
