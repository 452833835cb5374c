"""Names to components, and what is said when there is none."""

from types import ModuleType

import attrs
import pytest

from agentgym_core import hookimpl
from agentgym_core.catalog import Catalog
from agentgym_core.errors import ComponentNotFoundError, ConfigError, PluginError
from agentgym_core.plugins import BrokenPlugin, Plugins, Registration


@attrs.frozen(kw_only=True)
class Maze:
    size: int
    dark: bool = False


@attrs.frozen(kw_only=True)
class Crash:
    level: int = 1

    def __attrs_post_init__(self):
        raise ValueError("level has no map")


@attrs.define(kw_only=True)
class Thawed:
    size: int = 1


class Plain:
    pass


class Undecorated(Maze):
    pass


def registered(name, import_string, kind="environment", package="agentgym-maze"):
    return Registration(
        kind=kind,
        name=name,
        import_string=import_string,
        package=package,
        version="0.3",
        hook="register_environments",
    )


def catalog(**import_strings):
    names = {name.replace("_", "-"): target for name, target in import_strings.items()}
    return Catalog(Plugins(registrations=tuple(registered(*item) for item in names.items())))


MAZES = catalog(maze=f"{__name__}:Maze", mazurka=f"{__name__}:Crash")


OF_MAZE = " (package agentgym-maze 0.3)"


def not_found(catalog, kind, name):
    with pytest.raises(ComponentNotFoundError) as error:
        catalog.find(kind, name)
    return str(error.value)


def test_names_are_those_of_the_kind():
    assert MAZES.names("environment") == ("maze", "mazurka")
    assert MAZES.names("agent") == ()


def test_find_imports_the_class():
    assert MAZES.find("environment", "maze") is Maze


def test_nothing_is_imported_before_it_is_asked_for():
    lazy = catalog(maze=f"{__name__}:Maze", other="no_such_module:Other")
    assert lazy.find("environment", "maze") is Maze


def test_an_unknown_name_lists_what_is_installed_and_says_what_to_install():
    assert not_found(MAZES, "environment", "webarena") == (
        "no environment is called 'webarena'. Installed: maze, mazurka. "
        "It ships in a plugin that is not installed: pip install agentgym-webarena, or "
        "from a clone pip install ./plugins/agentgym-webarena"
    )


def test_an_unknown_name_of_nobody():
    assert not_found(Catalog(Plugins()), "rounds", "spiral") == (
        "no round scheduler is called 'spiral'. Installed: none. If another package brings it, "
        "pip install that package here; `agentgym plugins` lists what is installed"
    )


def test_a_near_miss():
    assert not_found(MAZES, "environment", "mase") == (
        "no environment is called 'mase'. Installed: maze, mazurka. Did you mean maze?"
    )


def test_a_broken_plugin_may_have_held_it():
    broken = BrokenPlugin(
        package="agentgym-webarena",
        version="0.1",
        entry_point="webarena",
        error="ModuleNotFoundError: No module named 'playwright'",
    )
    assert not_found(Catalog(Plugins(broken=(broken,))), "environment", "webarena") == (
        "no environment is called 'webarena'. Installed: none. Broken plugins that may hold it: "
        "agentgym-webarena 0.1 (ModuleNotFoundError: No module named 'playwright'). Mend or "
        "reinstall them"
    )


def test_what_is_left_out_may_hold_the_name_of_somebody_else():
    left_out = Catalog(Plugins(left_out=("agentgym-maze", "agentgym-treasure")))
    assert not_found(left_out, "environment", "maze") == (
        "no environment is called 'maze'. Installed: none. It may be in what AGENTGYM_LOAD_PLUGINS "
        "or AGENTGYM_BLOCK_PLUGINS leaves out: agentgym-maze, agentgym-treasure"
    )


def test_a_plugin_that_is_left_out_is_not_to_be_installed():
    left_out = Catalog(Plugins(left_out=("agentgym-webarena",)))
    assert not_found(left_out, "environment", "webarena") == (
        "no environment is called 'webarena'. Installed: none. It ships in agentgym-webarena, "
        "which AGENTGYM_LOAD_PLUGINS or AGENTGYM_BLOCK_PLUGINS leaves out"
    )


@pytest.mark.parametrize(
    ("import_string", "cause"),
    [
        ("no_such_module:Maze", "ModuleNotFoundError: No module named 'no_such_module'"),
        (
            f"{__name__}:Amaze",
            f"AttributeError: module '{__name__}' has no attribute 'Amaze'",
        ),
    ],
)
def test_an_import_that_fails_names_the_package(import_string, cause):
    with pytest.raises(PluginError) as error:
        catalog(maze=import_string).find("environment", "maze")
    assert str(error.value) == (
        f"cannot import {import_string} (package agentgym-maze 0.3): {cause}"
    )


@pytest.mark.parametrize("name", ["Plain", "Thawed", "Undecorated", "catalog"])
def test_a_component_is_a_frozen_attrs_class(name):
    with pytest.raises(PluginError) as error:
        catalog(maze=f"{__name__}:{name}").find("environment", "maze")
    assert str(error.value) == (
        f"{__name__}:{name} (package agentgym-maze 0.3) is no frozen attrs class. "
        "Decorate it with @attrs.frozen(kw_only=True)"
    )


def test_build_fills_the_fields():
    block = {"use": "maze", "size": 3, "dark": True}
    assert MAZES.build("environment", block, "environment") == Maze(size=3, dark=True)
    assert block["use"] == "maze", "the block is the caller's"


def test_a_name_alone_is_a_block():
    small = catalog(maze=f"{__name__}:Maze")
    with pytest.raises(ConfigError) as error:
        small.build("environment", "maze", "environment")
    assert str(error.value) == (
        "environment.size: required field missing (package agentgym-maze 0.3)"
    )


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"size": 3}, "environment.use: required field missing. Installed: maze, mazurka"),
        ({"use": 3}, "environment.use: expected text, got 3. Put it in quotes"),
        (None, "environment: expected a name or a block of keys, got nothing"),
        ([1], "environment: expected a name or a block of keys, got [1]"),
        (
            {"use": "maze", "size": "big"},
            "environment.size: expected a whole number, got 'big'" + OF_MAZE,
        ),
        (
            {"use": "maze", "size": 1, "drak": True},
            "environment.drak: unknown key. Did you mean dark?" + OF_MAZE,
        ),
        ("mazurka", "environment: level has no map" + OF_MAZE),
    ],
)
def test_a_block_that_does_not_fit(block, message):
    with pytest.raises(ConfigError) as error:
        MAZES.build("environment", block, "environment")
    assert str(error.value) == message


def test_a_catalog_of_modules_needs_no_entry_points():
    @hookimpl
    def register_environments(register):
        register("maze", f"{__name__}:Maze")

    module = ModuleType("toy_plugin")
    module.register_environments = register_environments  # type: ignore[attr-defined]
    toys = Catalog.of_modules(module)
    assert toys.build("environment", {"use": "maze", "size": 2}, "environment") == Maze(size=2)
    assert toys.names("agent") == ()


def test_the_core_registers_components_that_exist(monkeypatch):
    monkeypatch.setenv("AGENTGYM_LOAD_PLUGINS", "")
    monkeypatch.delenv("AGENTGYM_BLOCK_PLUGINS", raising=False)
    core = Catalog.installed()
    assert core.names("agent") == ("act", "plan-act", "react", "reflect")
    assert core.names("rounds") == ("fixed",)
    assert core.names("task-sampler") == ("curriculum", "from-file", "uniform")
    assert core.names("reward") == ("environment", "format-penalty", "round-cost", "success")
    assert core.names("tracker") == ("tensorboard", "wandb")
    for registration in core.plugins.registrations:
        if registration.kind != "command":
            assert attrs.has(core.find(registration.kind, registration.name))
