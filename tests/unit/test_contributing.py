"""CONTRIBUTING.md names every axis that the code has, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEGEND = re.compile(r"^\| `([A-Z])` \|", re.M)
AXES = re.compile(r"[a-z]\w*_([A-Z]{1,4})")


def names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name | ast.arg | ast.Attribute):
            yield getattr(node, "id", None) or getattr(node, "arg", None) or node.attr


def test_the_legend_of_axes_is_that_of_the_code():
    legend = LEGEND.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    sources = [*ROOT.glob("agentgym_core/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    matches = [AXES.fullmatch(name) for path in sources for name in names(path)]
    found = {axis for match in matches if match for axis in match[1]}
    assert found == set(legend)
    assert len(legend) == len(set(legend))
