"""READMEs of algorithms show every key of a component, with its default."""

import re
from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_core.catalog import Catalog
from agentgym_core.structure import unstructure

PLUGINS = Path(__file__).parents[3] / "plugins"
NAMES = ("dpo", "evol", "grpo", "ppo", "reinforce-pp", "rloo")


def shown(name):
    """The blocks of algorithms and estimators in a README."""
    text = (PLUGINS / f"agentgym-{name}" / "README.md").read_text(encoding="utf-8")
    assert "every key" in text
    for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.S | re.M):
        for kind, component in yaml.safe_load(block).items():
            if kind in ("algorithm", "advantage"):
                yield pytest.param(kind, component, id=f"{name}-{component['use']}")


@pytest.mark.parametrize(("kind", "block"), [case for name in NAMES for case in shown(name)])
def test_every_key_is_there_at_its_default(kind, block):
    built = Catalog.installed().build(kind, block, kind)
    fields = attrs.fields(type(built))
    assert set(block) == {"use", *(field.name for field in fields)}
    required = {field.name: block[field.name] for field in fields if field.default is attrs.NOTHING}
    default = type(built)(**{key: getattr(built, key) for key in required})
    assert {"use": block["use"], **unstructure(default)} == block
    assert built == default
