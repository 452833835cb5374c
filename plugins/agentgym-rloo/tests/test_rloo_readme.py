"""The README's keys are those of the components, with their defaults."""

import re
from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_core.catalog import Catalog
from agentgym_core.structure import unstructure

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", README, re.S | re.M)]
COMPONENTS = [(kind, block) for blocks in BLOCKS for kind, block in blocks.items()]


@pytest.mark.parametrize(
    ("kind", "block"), [pair for pair in COMPONENTS if pair[0] in ("algorithm", "advantage")]
)
def test_every_key_is_there_at_its_default(kind, block):
    built = Catalog.installed().build(kind, block, kind)
    assert {"use": block["use"], **unstructure(type(built)())} == block
    assert built == type(built)()
    assert set(block) == {"use", *(field.name for field in attrs.fields(type(built)))}
