"""The settings that the README's table gives are accepted."""

import re
from pathlib import Path

import pytest
import yaml

from agentgym_core.catalog import Catalog

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]*`.*`[^|]*) \|$", README, re.M)


@pytest.mark.parametrize(("name", "settings"), ROWS, ids=[name for name, _ in ROWS])
def test_the_settings_of_the_table_are_accepted(name, settings):
    """Those that give a value; the rest is words."""
    pairs = [yaml.safe_load(text) for text in re.findall(r"`(\w+: [^`{]+)`", settings)]
    keys = {key: value for pair in pairs for key, value in pair.items() if value is not None}
    keys.pop("advantage", None)
    if keys.get("aggregation") == "constant":
        keys["aggregation_constant"] = 100.0
    Catalog.installed().build("algorithm", {"use": "reinforce-pp", **keys}, "algorithm")
