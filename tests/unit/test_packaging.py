"""What every package of the workspace says of itself, and the licenses that travel with it."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
LICENSED = "Licensed under the Apache License, Version 2.0."
BREAKING = {
    "agentgym-core": "0.2",
    "click": "9",
    "numpy": "3",
    "pluggy": "2",
    "torch": "3",
    "transformers": "6",
}
"""Of these a new major is known to break its users."""


def project(package):
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(package):
    declared = project(package)
    lists = [declared["dependencies"], *declared.get("optional-dependencies", {}).values()]
    return [Requirement(text) for texts in lists for text in texts]


def test_every_plugin_is_found():
    assert {path.name for path in (ROOT / "plugins").iterdir()} == {
        package.name for package in PACKAGES[1:]
    }


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_metadata_is_complete(package):
    found = project(package)
    core = project(ROOT)
    for key in ("version", "requires-python", "license", "license-files", "readme", "authors"):
        assert found[key] == core[key], key
    assert found["name"] == (core["name"] if package == ROOT else package.name)
    assert found["description"].endswith(".")
    assert set(found["classifiers"]) == set(core["classifiers"])
    assert len(found["keywords"]) == len(set(found["keywords"])) >= 4
    assert found["entry-points"]["agentgym"]
    assert "urls" not in found, "there is no address yet that a link could lead to"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_license_travels_with_it(package):
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    notice = (package / "NOTICE").read_text(encoding="utf-8")
    assert notice.startswith((ROOT / "NOTICE").read_text(encoding="utf-8").partition(LICENSED)[0])
    assert LICENSED in notice
    assert (package / "README.md").read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_dependencies_are_few_and_ranged(package):
    found = requirements(package)
    assert len(project(package)["dependencies"]) <= 7
    assert len(found) <= 16
    for requirement in found:
        operators = {clause.operator: clause.version for clause in requirement.specifier}
        assert ">=" in operators, f"{requirement} has no lowest version"
        assert not set(operators) & {"==", "~=", "==="}, f"{requirement} is pinned"
        assert operators.get("<") == BREAKING.get(requirement.name), requirement


@pytest.mark.parametrize("package", PACKAGES[1:], ids=lambda path: path.name)
def test_plugins_need_the_core_and_no_other_plugin(package):
    names = [requirement.name for requirement in requirements(package)]
    assert [name for name in names if name.startswith("agentgym")] == ["agentgym-core"]
    sources = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    assert "uv" not in sources.get("tool", {}), "a source distribution knows no workspace"
