"""The code of the pages works as it stands: it is found, conforms, and trains for two steps."""

import asyncio
import importlib.util
import re
import tomllib
from pathlib import Path
from unittest import SkipTest

import pytest
from click.testing import CliRunner

from agentgym_core.catalog import Catalog
from agentgym_core.cli import main
from agentgym_core.cli.new import KINDS
from agentgym_core.config import load_config
from agentgym_core.files import read_json_lines
from agentgym_core.train import train

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("docs/write-*.md"))
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
CHECK = re.compile(r"^agentgym (check .*)$", re.M)
SHORT = [
    "stages.0.algorithm.num_demonstrations=20",
    "stages.0.training.num_steps=2",
    "stages.1.training.num_steps=2",
    "stages.1.training.tasks_per_step=2",
    "evaluation.num_samples=1",
]


def install(page, folder, monkeypatch):
    """Write the page's files, and make its package found as pip would, without pip."""
    found = FILE.findall(page.read_text(encoding="utf-8"))
    files = dict(found)
    assert len(files) == len(found), f"{page.name} gives a file twice"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    code = folder / "src" if (folder / "src").is_dir() else folder
    for module in code.glob("*/plugin.py"):
        (module.parent / "__init__.py").touch()  # empty ones are not worth a block of the page
    info = code / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    header = f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(header)
    entries = [f"{key} = {value}\n" for key, value in project["entry-points"]["agentgym"].items()]
    (info / "entry_points.txt").write_text("[agentgym]\n" + "".join(entries))
    monkeypatch.syspath_prepend(code)
    return project["name"], files


def conform(path):
    """Run the tests of a page's test file; how many there are."""
    spec = importlib.util.spec_from_file_location(f"page_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [
        getattr(suite(), name)
        for suite in vars(module).values()
        if isinstance(suite, type) and suite.__name__.startswith("Test")
        for name in dir(suite)
        if name.startswith("test_")
    ]
    tests += [value for name, value in vars(module).items() if name.startswith("test_")]
    done = 0
    for test in tests:
        try:
            test()
            done += 1
        except SkipTest:
            pass
    return done


def play(folder, *overrides):
    config = load_config(
        folder / "run.yaml", [f"output={folder / 'runs'}", *overrides], Catalog.installed()
    )
    return read_json_lines(asyncio.run(train(config, lambda row: None)) / "metrics.jsonl")


def check_commands(page):
    """Call every `agentgym check` that the page shows."""
    commands = CHECK.findall(page.read_text(encoding="utf-8"))
    assert commands, f"{page.name} shows no `agentgym check`"
    for command in commands:
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_works(page, tmp_path, monkeypatch):
    package, files = install(page, tmp_path, monkeypatch)
    registered = [k for k in Catalog.installed().plugins.registrations if k.package == package]
    assert registered, f"{page.name}: {package} registers nothing"
    (test,) = (name for name in files if name.startswith("tests/"))
    assert conform(tmp_path / test) >= 5
    check_commands(page)
    assert registered[0].kind in KINDS
    assert f"`agentgym new {registered[0].kind} NAME`" in page.read_text(encoding="utf-8")
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    name = registered[0].name
    assert re.search(rf"\b{name}\b", files["run.yaml"]), f"{page.name}: run.yaml uses no {name}"
    rows = [row for row in play(tmp_path) if row["phase"] == "train"]
    assert [(row["episodes"], row["dropped"]) for row in rows] == [(12, 0)] * 2
    # An untrained model names no action of a new world, so that its attempts there do not differ.
    learned = any(row["update_skipped"] == 0 for row in rows)
    assert learned or registered[0].kind == "environment"


def test_the_readmes_environment_is_short_and_trains(tmp_path, monkeypatch):
    package, files = install(ROOT / "README.md", tmp_path, monkeypatch)
    assert package == "guess-number"
    code = [line for line in files["guess_number.py"].splitlines() if line.strip()]
    assert len(code) <= 40
    check_commands(ROOT / "README.md")
    stages = {row["stage"] for row in play(tmp_path, *SHORT) if row["phase"] == "train"}
    assert stages == {"sft", "grpo"}


def test_every_page_is_listed_with_one_line():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/adr/*.md")]:
        if page.name != "index.md":
            target = page.relative_to(ROOT / "docs").as_posix()
            lines = [line for line in index.splitlines() if f"]({target})" in line]
            assert len(lines) == 1, f"docs/index.md names {target} in {len(lines)} lines"
