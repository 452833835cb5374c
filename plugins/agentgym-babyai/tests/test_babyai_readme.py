"""The README's code, transcripts and tables are what they say."""

import ast
import asyncio
import contextlib
import io
import re
from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_babyai import plugin
from agentgym_babyai.environment import BabyAI
from agentgym_babyai.levels import LEVELS
from agentgym_core.catalog import Catalog

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.S | re.M)
MISTAKES = {1: "pick up purple ball 1", 3: "toggle"}


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


@pytest.mark.parametrize(("number", "options"), [(1, {}), (2, {"prompt": "short"})])
def test_transcripts(number, options):
    assert asyncio.run(transcript(BabyAI(**options), "babyai_101")) == blocks("text")[number]


def test_the_yaml_composes():
    catalog = Catalog.of_modules(plugin)
    written = [yaml.safe_load(text)["environment"] for text in blocks("yaml")]
    written.append(yaml.safe_load(re.search(r"`(\{use: babyai, .*\})`", README)[1]))
    built = [catalog.build("environment", block, "environment") for block in written]
    assert built[0] == BabyAI()
    assert built[2] == BabyAI(prompt="short")
    # 40 levels x 100 seeds - 90 test tasks - 5 that cannot be won; 2 x 400 - 2 x 20
    assert [len(environment.tasks("train")) for environment in built] == [3905, 760, 3905]


def test_the_options_table():
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", README, re.M)
    table = {name: yaml.safe_load(default) for name, default in rows}
    assert table == {field.name: field.default for field in attrs.fields(BabyAI)}


def test_the_table_of_levels():
    found = re.findall(r"\| (\d+) \| `(\w+)` \| (\w+) (?=\|)", README)
    levels = sorted((int(number), name, group) for number, name, group in found)
    assert levels == [(level.number, level.name, level.group) for level in LEVELS]
