"""The `agentgym` command: what it prints, how it fails, and how little it imports."""

import importlib.metadata
import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import agentgym_core.cli.plugins as plugins_command
from agentgym_core.cli import COMMANDS, main
from agentgym_core.errors import PluginError
from agentgym_core.plugins import BrokenPlugin, Plugins, Registration

MAZE = Registration(
    kind="environment",
    name="maze",
    import_string="agentgym_maze.environment:Maze",
    package="agentgym-maze",
    version="0.3",
    hook="register_environments",
)
ACT = Registration(
    kind="agent",
    name="act",
    import_string="agentgym_core.agents.act:Act",
    package="agentgym-core",
    version="0.1.0",
    hook="register_agents",
)
BROKEN = BrokenPlugin(
    package="agentgym-webarena",
    version="0.2",
    entry_point="webarena",
    error="ModuleNotFoundError: No module named 'playwright'",
)


def run(monkeypatch, found, *arguments):
    def installed_plugins():
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(plugins_command, "installed_plugins", installed_plugins)
    return CliRunner().invoke(main, ["plugins", *arguments])


def test_a_table_of_registrations(monkeypatch):
    result = run(monkeypatch, Plugins(registrations=(MAZE, ACT)))
    assert result.exit_code == 0
    assert result.output == (
        "KIND         NAME  PACKAGE        VERSION  HOOK\n"
        "environment  maze  agentgym-maze  0.3      register_environments\n"
        "agent        act   agentgym-core  0.1.0    register_agents\n"
    )


def test_broken_and_left_out_packages_are_in_sight(monkeypatch):
    found = Plugins(registrations=(ACT,), broken=(BROKEN,), left_out=("agentgym-maze",))
    result = run(monkeypatch, found)
    assert result.exit_code == 0
    assert result.output == (
        "KIND   NAME  PACKAGE        VERSION  HOOK\n"
        "agent  act   agentgym-core  0.1.0    register_agents\n"
        "\n"
        "Broken plugins, which register nothing:\n"
        "  agentgym-webarena 0.2 (entry point webarena): "
        "ModuleNotFoundError: No module named 'playwright'\n"
        "\n"
        "Left out by AGENTGYM_LOAD_PLUGINS or AGENTGYM_BLOCK_PLUGINS: agentgym-maze\n"
    )


def test_json_holds_everything(monkeypatch):
    result = run(monkeypatch, Plugins(registrations=(MAZE,), broken=(BROKEN,)), "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == {
        "registrations": [
            {
                "kind": "environment",
                "name": "maze",
                "import_string": "agentgym_maze.environment:Maze",
                "package": "agentgym-maze",
                "version": "0.3",
                "hook": "register_environments",
            }
        ],
        "broken": [
            {
                "package": "agentgym-webarena",
                "version": "0.2",
                "entry_point": "webarena",
                "error": "ModuleNotFoundError: No module named 'playwright'",
            }
        ],
        "left_out": [],
    }


def test_an_error_of_ours_is_one_line(monkeypatch):
    monkeypatch.delenv("AGENTGYM_TRACEBACK", raising=False)
    result = run(monkeypatch, PluginError("two plugins want one name"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "error: two plugins want one name\n"


def test_its_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("AGENTGYM_TRACEBACK", "1")
    result = run(monkeypatch, PluginError("two plugins want one name"))
    assert isinstance(result.exception, PluginError)


def test_other_errors_are_not_swallowed(monkeypatch):
    result = run(monkeypatch, ZeroDivisionError("a bug"))
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_listed_command_exists(name):
    assert isinstance(main.get_command(click.Context(main), name), click.Command)


IMPORTED = """
import sys
from agentgym_core.cli import main
try:
    main(sys.argv[1:])
except SystemExit as exit:
    assert not exit.code, exit.code
heavy = {"numpy", "torch", "transformers", "attrs", "yaml", "wandb", "tensorboardX"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["plugins"], ["plugins", "--json"]]
)
def test_answers_without_importing_anything_heavy(arguments):
    """Times are not asserted, but these imports would take them past 0.3 s."""
    result = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    expected = {
        "--help": "Train language-model agents with multi-turn reinforcement learning.",
        "--version": importlib.metadata.version("agentgym-core"),
        "plugins": "register_task_samplers",
    }
    assert expected[arguments[0]] in result.stdout
    if "--help" in arguments:
        for name, (_, help_) in COMMANDS.items():
            assert name in result.stdout
            assert help_ in result.stdout
    if "--json" in arguments:
        names = {known["name"] for known in json.loads(result.stdout)["registrations"]}
        assert {"act", "react", "fixed", "uniform", "success", "tensorboard", "train"} <= names
