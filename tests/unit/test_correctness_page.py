"""docs/correctness.md names tests that there are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/.-]+\.py)::(\w+)`", PAGE)))


def test_every_row_names_one():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "What must" not in line]
    assert len(rows) > 20
    assert [row for row in rows if ".py::test_" not in row] == []


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_it_is_there(path, name):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
