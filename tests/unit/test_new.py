"""`agentgym new`: what it writes works, is in style, and never comes by halves."""

import importlib
import importlib.metadata
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement

from agentgym_core.catalog import Catalog
from agentgym_core.cli import main
from agentgym_core.cli.new import KINDS, TEMPLATES, _compatible
from agentgym_core.plugins import HOOKS

ROOT = Path(__file__).parents[2]
LONG = "-that-has-a-long-name"


def call(*arguments):
    return CliRunner().invoke(main, ["new", *map(str, arguments)])


def write(kind, name, folder):
    done = call(kind, name, "--into", folder / f"agentgym-{name}")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A package of every kind, called like `new-agent`."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in KINDS:
        write(kind, f"new-{kind}", folder)
    return folder


def test_every_kind_has_templates():
    assert {path.name for path in TEMPLATES.iterdir()} == {"package", *KINDS}
    assert set(KINDS) < set(HOOKS.values())


def test_their_own_tests_pass_and_none_is_skipped(folder):
    """With torch, which the loss of an algorithm is tried with."""
    sources = os.pathsep.join(str(path / "src") for path in folder.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", folder],
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    summary = done.stdout.splitlines()[-1]
    assert " passed in " in summary
    assert "skipped" not in summary


def ruff(folder, *command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--no-cache", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("suffix", ["", LONG])
@pytest.mark.parametrize("kind", KINDS)
def test_style(kind, suffix, tmp_path):
    """The project's, and what the package's own settings ask for."""
    write(kind, f"a{suffix}", tmp_path)
    package = tmp_path / f"agentgym-a{suffix}"
    project = ("--config", ROOT / "pyproject.toml")
    ruff(package, "check", *project, "--config", "src = ['src']")
    ruff(package, "check")
    ruff(package, "format", "--check", *project)
    ruff(package, "format", "--check")


@pytest.mark.parametrize("kind", KINDS)
def test_the_yaml_that_is_shown_builds_the_component(kind, tmp_path, monkeypatch):
    said = write(kind, "shown", tmp_path)
    readme = (tmp_path / "agentgym-shown" / "README.md").read_text()
    example = said.partition("In the YAML file of a run:\n\n")[2]
    assert f"```yaml\n{example}```" in readme
    monkeypatch.syspath_prepend(tmp_path / "agentgym-shown" / "src")
    try:
        catalog = Catalog.of_modules(importlib.import_module("agentgym_shown.plugin"))
        block = yaml.safe_load(example)[kind]
        if kind == "reward":
            block = block[-1]
        component = catalog.build(kind, block, kind)
        assert type(component).__name__ == "Shown"
        assert component == catalog.build(kind, "shown", kind), "it shows the defaults"
    finally:
        for name in [name for name in sys.modules if name.startswith("agentgym_shown")]:
            del sys.modules[name]


@pytest.mark.parametrize("kind", KINDS)
def test_metadata(kind, folder):
    package = folder / f"agentgym-new-{kind}"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    module = f"agentgym_new_{kind}"
    assert project["name"] == f"agentgym-new-{kind}"
    assert project["license"] == "Apache-2.0"
    assert project["entry-points"] == {"agentgym": {f"new-{kind}": f"{module}.plugin"}}
    (core,) = map(Requirement, project["dependencies"])
    assert core.name == "agentgym-core"
    assert importlib.metadata.version("agentgym-core") in core.specifier
    assert "99.0" not in core.specifier
    assert {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()} >= {
        "README.md",
        "pyproject.toml",
        f"src/{module}/__init__.py",
        f"src/{module}/py.typed",
        f"src/{module}/plugin.py",
        f"src/{module}/{kind}.py",
        f"tests/test_new_{kind}.py",
    }
    assert (package / f"src/{module}/__init__.py").read_text() == ""


@pytest.mark.parametrize(
    ("version", "versions"),
    [
        ("0.1.0", ">=0.1.0,<0.2"),
        ("0.9.3rc1", ">=0.9.3rc1,<0.10"),
        ("1.4.2", ">=1.4.2,<2"),
        ("0.2.0.dev1+g1", ">=0.2.0.dev1,<0.3"),
    ],
)
def test_versions_of_the_core_that_it_works_with(version, versions):
    assert _compatible(version) == versions


def test_the_next_commands_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("reward", "haste").exit_code == 0
    assert Path("agentgym-haste/pyproject.toml").exists()
    said = call("reward", "haste", "--into", "my plugins/haste").output
    commands = [shlex.split(line) for line in said.splitlines() if line.startswith("  ")][:3]
    assert commands == [
        ["pip", "install", "-e", "my plugins/haste[test]"],
        ["pytest", "my plugins/haste"],
        ["agentgym", "check", "haste"],
    ]
    assert Path("my plugins/haste/pyproject.toml").exists()


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("agent", "Guess", "names are kebab-case, such as 'guess-number', got 'Guess'"),
        ("agent", "guess_number", "names are kebab-case"),
        ("agent", "../guess", "names are kebab-case"),
        ("agent", "2048", "names are kebab-case"),
        ("agent", "class", "'class' is a keyword of Python: choose another name"),
        ("agent", "none", "'none' would make a class None"),
        ("reward", "value-error", "'value-error' would make a class ValueError"),
        ("environment", "task", "'task' would make a class Task"),
        ("reward", "episode-reward", "'episode-reward' would make a class EpisodeReward"),
        ("agent", "without-plan", "'without-plan' would make a class TestWithoutPlan"),
        (
            "rounds",
            "fixed",
            "'fixed' is taken by the round scheduler of that name in agentgym-core",
        ),
        ("environment", "act", "'act' is taken by the agent of that name in agentgym-core"),
        ("environment", "core", "agentgym-core "),
    ],
)
def test_names_that_are_refused(kind, name, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(kind, name)
    assert done.exit_code == 2
    assert done.output.startswith(f"error: {says}")
    assert done.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("agentgym-haste").mkdir()
    done = call("reward", "haste")
    assert done.exit_code == 2
    assert done.output == (
        "error: agentgym-haste exists: remove it, or write another folder with --into\n"
    )
    assert list(tmp_path.rglob("*")) == [tmp_path / "agentgym-haste"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    write_text = Path.write_text

    def full(path, text, **options):
        if path.name == "plugin.py":
            raise OSError(28, "No space left on device")
        return write_text(path, text, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_text", full)
    done = call("reward", "haste")
    assert done.exit_code == 2
    assert "cannot write agentgym-haste: No space left on device" in done.output
    assert list(tmp_path.iterdir()) == []
