"""CONTRIBUTING.md names every axis that the code has, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEGEND = re.compile(r"^\| `([A-Z])` \|", re.M)
AXES = re.compile(r"[a-z0-9]_([A-Z]+)")


def names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name | ast.arg | ast.Attribute):
            yield getattr(node, "id", None) or getattr(node, "arg", None) or node.attr


def test_the_legend_of_axes_is_that_of_the_code():
    legend = LEGEND.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    sources = [*ROOT.glob("agentgym_core/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    found = {
        axis
        for path in sources
        for name in names(path)
        if (match := AXES.fullmatch(name[-1 - len(name.rpartition("_")[2]) - 1 :]))
        for axis in match[1]
    }
    assert found == set(legend)
    assert len(legend) == len(set(legend))
