"""The README's code, transcripts and tables are what they say."""

import ast
import asyncio
import contextlib
import io
import re
from collections import Counter
from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_core.catalog import Catalog
from agentgym_textcraft import plugin
from agentgym_textcraft.environment import TextCraft
from agentgym_textcraft.planning import plan
from agentgym_textcraft.recipe_files import recipe_book

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.S | re.M)
SHORT = {"prompt": "short", "num_distractors": 3, "alternatives": False}
MISTAKES = {1: "craft 4 stone bricks using 2 stone", 3: "get 1 mossy stone brick"}


def blocks(language):
    return [text for found, text in BLOCKS if found == language]


async def transcript(environment, task_id):
    """An expert's episode with two wrong actions."""
    session = await environment.open()
    observation = await session.reset(environment.task(task_id), seed=0)
    lines = [*filter(None, [environment.instructions()]), observation.text]
    number = 0
    while not observation.terminated:
        action = MISTAKES.get(number) or await session.expert_action()
        observation = await session.step(action)
        lines.append(f"> {action}\n{observation.text}")
        number += 1
    return "\n\n".join(lines) + "\n"


def test_the_example_prints_what_is_shown():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.parse(blocks("python")[0]), "README.md", "exec"), {})
    assert printed.getvalue() == blocks("text")[0]


@pytest.mark.parametrize(("number", "options"), [(1, {}), (2, SHORT)])
def test_transcripts(number, options):
    assert asyncio.run(transcript(TextCraft(**options), "textcraft_300")) == blocks("text")[number]


def test_the_yaml_composes():
    catalog = Catalog.of_modules(plugin)
    written = [yaml.safe_load(text)["environment"] for text in blocks("yaml")]
    written.append(yaml.safe_load(re.search(r"`(\{use: textcraft, .*\})`", README)[1]))
    built = [catalog.build("environment", block, "environment") for block in written]
    assert built[0] == TextCraft()
    assert built[2] == TextCraft(**SHORT)
    assert [len(environment.tasks("train")) for environment in built] == [444, 320, 444]


def test_the_options_table():
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", README, re.M)
    table = {name: yaml.safe_load(default) for name, default in rows if name != "inventory"}
    fields = {
        field.name: list(field.default) if isinstance(field.default, tuple) else field.default
        for field in attrs.fields(TextCraft)
    }
    assert table == fields


def plan_length_rows():
    book = recipe_book()
    for name, shown in (("all recipes", book), ("`tags: false`", book.without_kinds)):
        plans = filter(None, (plan(shown, goal, {}) for goal in book.goals))
        counts = Counter(min(len(found.actions), 7) for found in plans)
        yield f"| {name} | " + " | ".join(str(counts[length]) for length in range(2, 8)) + " |"


def test_goals_by_plan_length():
    for row in plan_length_rows():
        assert row in README.splitlines()
