"""Commands of plugins, in packages that are really found by their entry points."""

import os
import subprocess
import sys

import pytest

from agentgym_core.cli import COMMANDS

VIEWER = """
import click

@click.command()
@click.argument("run")
@click.option("--refuse", is_flag=True)
def view(run, refuse):
    '''Show a run.'''
    if refuse:
        from agentgym_core.errors import ConfigError
        raise ConfigError(f"{run} holds nothing to see")
    click.echo(f"viewing {run}")

def plain():
    pass
"""
PLUGIN = """
from agentgym_core import hookimpl

@hookimpl
def register_commands(register):
    register("{name}", "{target}")
"""


@pytest.fixture
def install(tmp_path):
    """Put a package with one command, or a plugin module of any text, where Python finds it."""

    def install(package, name="view", target="the_viewer:view", plugin=None):
        module = package.replace("-", "_")
        (tmp_path / f"{module}_plugin.py").write_text(
            plugin or PLUGIN.format(name=name, target=target)
        )
        info = tmp_path / f"{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {package}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[agentgym]\n{module} = {module}_plugin\n")
        (tmp_path / "the_viewer.py").write_text(VIEWER)

    return install


@pytest.fixture
def call(tmp_path):
    def call(*arguments, **environ):
        variables = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AGENTGYM_")},
            "PYTHONPATH": str(tmp_path),
            **environ,
        }
        done = subprocess.run(
            [sys.executable, "-m", "agentgym_core.cli", *arguments],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    return call


def listed(call, **environ):
    done = call("--help", **environ)
    assert done.returncode == 0
    for name, (_, help_) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert help_ in done.stdout
    return done.stdout


def test_a_plugins_command_runs_and_is_listed_with_its_package(install, call):
    install("the-viewer")
    done = call("view", "runs/small")
    assert (done.returncode, done.stdout) == (0, "viewing runs/small\n")
    assert "Show a run." in call("view", "--help").stdout
    assert "Commands of plugins:\n  view  the-viewer 1.5\n" in listed(call)
    rows = [line.split()[:3] for line in call("plugins").stdout.splitlines()]
    assert ["command", "view", "the-viewer"] in rows


def test_its_errors_are_clean_too(install, call):
    install("the-viewer")
    done = call("view", "runs/small", "--refuse")
    assert (done.returncode, done.stderr) == (2, "error: runs/small holds nothing to see\n")


@pytest.mark.parametrize("variable", ["AGENTGYM_LOAD_PLUGINS", "AGENTGYM_BLOCK_PLUGINS"])
def test_variables_leave_commands_out(install, call, variable):
    install("the-viewer")
    environ = {variable: "" if "LOAD" in variable else "the-viewer"}
    assert "the-viewer" not in listed(call, **environ)
    done = call("view", "x", **environ)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no command is called 'view'. Installed: ")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("the_viewer:plain", "is no click command. Decorate it with @click.command()"),
        ("the_viewer:veiw", "AttributeError: module 'the_viewer' has no attribute 'veiw'"),
        ("nowhere:view", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_is_no_command_names_the_package_and_harms_no_other(install, call, target, says):
    install("the-viewer", target=target)
    done = call("view")
    assert done.returncode == 2
    assert f"{target} (package the-viewer 1.5)" in done.stderr
    assert done.stderr.endswith(f"{says}\n")
    assert done.stderr.count("\n") == 1
    assert "view  the-viewer 1.5" in listed(call)


def test_a_broken_plugin_is_named_by_help_and_stops_nothing(install, call):
    install("the-viewer", plugin="import nowhere")
    assert "Plugins:\n  Broken: the-viewer. See: agentgym plugins\n" in listed(call)
    assert "the-viewer 1.5" in call("plugins").stdout
    done = call("view")
    assert "Broken plugins that may hold it: the-viewer 1.5 (ModuleNotFoundError" in done.stderr


def test_two_plugins_with_one_command_are_an_error_that_names_both(install, call):
    install("one-viewer")
    install("two-viewer")
    clash = "two plugins register the command 'view': one-viewer 1.5 and two-viewer 1.5."
    assert clash in call("view").stderr
    assert clash in listed(call)
    assert call("view", "x", AGENTGYM_BLOCK_PLUGINS="two-viewer").stdout == "viewing x\n"


def test_a_command_of_the_core_is_not_taken_over_in_silence(install, call):
    install("the-viewer", name="plugins")
    done = call("plugins")
    assert done.returncode == 2
    assert "two plugins register the command 'plugins': agentgym-core " in done.stderr
    assert "and the-viewer 1.5" in listed(call)
    assert call("train", "--help").returncode == 0, "it is found without any plugin"


@pytest.mark.parametrize(
    ("name", "near"), [("plugin", "plugins"), ("evall", "eval"), ("veiw", "view")]
)
def test_an_unknown_command_says_what_is_near(install, call, name, near):
    install("the-viewer")
    done = call(name)
    assert done.returncode == 2
    names = ", ".join(sorted([*COMMANDS, "view"]))
    assert done.stderr == (
        f"error: no command is called {name!r}. Installed: {names}. Did you mean {near}?\n"
    )


def test_a_command_of_this_project_that_is_not_installed(call):
    done = call("view", AGENTGYM_LOAD_PLUGINS="")
    assert "pip install agentgym-viewer" in done.stderr


def test_a_mistyped_option_is_no_command(call):
    assert "No such option '--hlep'" in call("--hlep").stderr
