"""The reward that the README shows, and the settings that its table gives, are accepted."""

import re
from pathlib import Path

import pytest
import yaml

from agentgym_core.catalog import Catalog

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", README, re.S | re.M)]
COMPONENTS = [(kind, block) for blocks in BLOCKS for kind, block in blocks.items()]


def test_the_reward_can_be_built():
    (rewards,) = (block for kind, block in COMPONENTS if kind == "reward")
    built = Catalog.installed().build("reward", rewards[1], "reward")
    assert (built.max_tokens, built.margin) == (2048, 512)


ROWS = re.findall(r"^\| ([^|]+) \| ([^|]*`.*`[^|]*) \|$", README, re.M)


@pytest.mark.parametrize(("name", "settings"), ROWS, ids=[name for name, _ in ROWS])
def test_the_settings_of_the_table_are_accepted(name, settings):
    """Those that give a value; the rest is words."""
    pairs = [yaml.safe_load(text) for text in re.findall(r"`(\w+: [^`{]+)`", settings)]
    keys = {key: value for pair in pairs for key, value in pair.items() if value is not None}
    keys.pop("advantage", None)
    if keys.get("aggregation") == "constant":
        keys["aggregation_constant"] = 100.0
    Catalog.installed().build("algorithm", {"use": "grpo", **keys}, "algorithm")
