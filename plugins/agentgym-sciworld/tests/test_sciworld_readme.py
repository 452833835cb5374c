"""What the README says is so."""

import ast
import contextlib
import io
import re
from pathlib import Path

import attrs
import yaml

from agentgym_core.catalog import Catalog
from agentgym_sciworld import plugin
from agentgym_sciworld.environment import SciWorld

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.S | re.M)


def blocks(language):
    return [text for found, text in BLOCKS if found == language]


def played():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.parse(blocks("python")[0]), "README.md", "exec"), {})
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def test_the_example_prints_what_is_shown():
    assert played() == blocks("text")[0]
    assert played().endswith("\nTrue\n")


def test_the_yaml_composes():
    catalog = Catalog.of_modules(plugin)
    written = yaml.safe_load(blocks("yaml")[0])["environment"]
    assert catalog.build("environment", written, "environment") == SciWorld()


def test_the_options_table():
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", README, re.M)
    fields = {
        field.name: list(field.default) if isinstance(field.default, tuple) else field.default
        for field in attrs.fields(SciWorld)
    }
    assert {name: yaml.safe_load(default) for name, default in rows} == fields


def test_the_splits_table():
    sizes = {name: int(size) for name, size in re.findall(r"^\| `(\w+)` \| (\d+) \|", README, re.M)}
    world = SciWorld()
    assert sizes == {split: len(world.tasks(split)) for split in world.splits}
