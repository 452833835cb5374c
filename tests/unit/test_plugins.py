"""Loading plugins: what is registered, what is refused, and in which words."""

import importlib.metadata
from types import ModuleType

import pytest

from agentgym_core import hookimpl, hookspecs
from agentgym_core.errors import ConfigError, PluginError
from agentgym_core.plugins import (
    HOOKS,
    NOUNS,
    BrokenPlugin,
    PluginSource,
    Registration,
    installed_plugins,
    load_plugins,
)


def source(package, *hooks, entry_point=None, load=None):
    module = ModuleType(package.replace("-", "_"))
    for hook in hooks:
        setattr(module, hook.__name__, hook)
    return PluginSource(
        entry_point=entry_point or package,
        package=package,
        version="1.2.0",
        load=load or (lambda: module),
    )


def environments(*names, import_string="world.environment:World"):
    @hookimpl
    def register_environments(register):
        for name in names:
            register(name, import_string)

    return register_environments


def error_of(*hooks, load=None):
    found = load_plugins(
        [source("broken", *hooks, load=load), source("good", environments("fine"))]
    )
    assert [known.package for known in found.registrations] == ["good"]
    (record,) = found.broken
    assert (record.package, record.version, record.entry_point) == ("broken", "1.2.0", "broken")
    return record.error


def test_every_hook_of_the_contract_is_collected():
    specs = {name for name in vars(hookspecs) if name.startswith("register_")}
    assert set(HOOKS) == specs


def registers(hook, *names):
    """A hook of any kind."""

    def implementation(register):
        for name in names:
            register(name, "world.parts:Part")

    implementation.__name__ = hook
    return hookimpl(implementation)


@pytest.mark.parametrize(("hook", "kind"), HOOKS.items())
def test_every_kind_is_registered_and_held_to_the_same_rules(hook, kind):
    found = load_plugins([source("one", registers(hook, "part"))])
    assert [(known.kind, known.hook) for known in found.registrations] == [(kind, hook)]
    assert error_of(registers(hook, "part", "part")) == f"{hook}: 'part' is registered twice"
    with pytest.raises(PluginError) as error:
        load_plugins([source(name, registers(hook, "part")) for name in ("one", "two")])
    assert str(error.value).startswith(
        f"two plugins register the {NOUNS[kind]} 'part': one 1.2.0 and two 1.2.0."
    )


def test_a_registration_says_where_it_comes_from():
    found = load_plugins([source("world-pack", environments("world"), entry_point="world")])
    assert found.broken == ()
    assert found.registrations == (
        Registration(
            kind="environment",
            name="world",
            import_string="world.environment:World",
            package="world-pack",
            version="1.2.0",
            hook="register_environments",
        ),
    )


def test_registrations_are_sorted_by_kind_then_name_whatever_the_order_of_packages():
    @hookimpl
    def register_agents(register):
        register("act", "a:Act")

    first = source("first", environments("zoo", "ant"))
    second = source("second", register_agents, environments("bee"))
    for sources in ([first, second], [second, first]):
        found = load_plugins(sources)
        assert [(known.kind, known.name) for known in found.registrations] == [
            ("environment", "ant"),
            ("environment", "bee"),
            ("environment", "zoo"),
            ("agent", "act"),
        ]


def test_one_name_may_stand_for_different_kinds():
    @hookimpl
    def register_engines(register):
        register("torch", "a:Engine")

    @hookimpl
    def register_backends(register):
        register("torch", "a:Backend")

    found = load_plugins([source("pack", register_engines, register_backends)])
    assert [known.kind for known in found.registrations] == ["engine", "backend"]


def test_a_plugin_that_cannot_be_imported_stops_no_other():
    def load():
        raise ModuleNotFoundError("No module named 'playwright'")

    assert error_of(load=load) == "ModuleNotFoundError: No module named 'playwright'"


def test_a_plugin_that_exits_stops_no_other():
    def load():
        raise SystemExit("no licence")

    assert error_of(load=load) == "SystemExit: no licence"


def test_an_entry_point_must_name_a_module():
    assert error_of(load=lambda: object()) == "its entry point must name a module, without a colon"


def test_a_misspelt_hook_is_an_error():
    @hookimpl
    def register_enviroments(register):
        register("world", "a:World")

    assert error_of(register_enviroments) == (
        "implements register_enviroments, which is no hook. Did you mean register_environments?"
    )


def test_a_hook_of_a_newer_core_may_be_marked_optional():
    @hookimpl(optionalhook=True)
    def register_telepathy(register):
        raise AssertionError("never called")

    found = load_plugins([source("pack", register_telepathy, environments("world"))])
    assert found.broken == ()
    assert [known.name for known in found.registrations] == ["world"]


def test_a_hook_without_its_decorator_is_an_error():
    def register_environments(register):
        register("world", "a:World")

    assert error_of(register_environments) == (
        "register_environments lacks the decorator @agentgym_core.hookimpl"
    )


def test_an_argument_with_a_default_is_an_error():
    @hookimpl
    def register_environments(register=print):
        register("world", "a:World")

    assert error_of(register_environments) == (
        "register_environments gives its argument 'register' a default value, so the hook would "
        "never be handed one. Remove the default"
    )


def test_an_argument_that_no_hook_has_is_an_error():
    @hookimpl
    def register_environments(registry):
        registry("world", "a:World")

    error = error_of(register_environments)
    assert error.startswith("PluginValidationError: ")
    assert "'registry'" in error
    assert "\n" not in error


@pytest.mark.parametrize("name", ["World", "my_world", "-world", "world-", "a--b", "2d", ""])
def test_names_are_kebab_case(name):
    assert error_of(environments("before", name)) == (
        f"register_environments: names are kebab-case, such as 'guess-number', got {name!r}"
    )


def test_an_import_string_has_a_module_and_a_class():
    assert error_of(environments("world", import_string="world.environment.World")) == (
        "register_environments: 'world' needs an import string such as 'package.module:Class', "
        "got 'world.environment.World'"
    )


def test_one_plugin_must_not_register_a_name_twice():
    assert error_of(environments("world", "world")) == (
        "register_environments: 'world' is registered twice"
    )


def test_two_packages_with_one_name_are_an_error_that_names_both():
    with pytest.raises(PluginError) as error:
        load_plugins([source("one", environments("world")), source("two", environments("world"))])
    assert str(error.value) == (
        "two plugins register the environment 'world': one 1.2.0 and two 1.2.0. Uninstall one, or "
        "leave one out: AGENTGYM_BLOCK_PLUGINS=two"
    )


def test_two_packages_with_one_entry_point_are_an_error_even_if_both_are_broken():
    def load():
        raise AssertionError("the scan comes before loading")

    with pytest.raises(PluginError) as error:
        load_plugins(
            [
                source("one", entry_point="world", load=load),
                source("two", entry_point="world", load=load),
            ]
        )
    assert str(error.value) == (
        "two plugins have an entry point called 'world': one 1.2.0 and two 1.2.0. Uninstall one, "
        "or leave one out: AGENTGYM_BLOCK_PLUGINS=two"
    )


@pytest.fixture
def two_packages(tmp_path, monkeypatch):
    """Two installed distributions, with every hook, and no other of the group `agentgym`."""
    for package, version in (("agentgym-sun", "1.0"), ("Moon_Pack", "2.0")):
        module = package.replace("-", "_").lower()
        name = module.replace("_", "-")
        hooks = "".join(
            f"@hookimpl\ndef {hook}(register):\n    register({name!r}, 'a:A')\n" for hook in HOOKS
        )
        (tmp_path / f"{module}_plugin.py").write_text(
            f"from agentgym_core import hookimpl\n{hooks}"
        )
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[agentgym]\n{module} = {module}_plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.metadata.distributions(path=[str(tmp_path)])
    entry_points = importlib.metadata.EntryPoints(
        entry_point for distribution in found for entry_point in distribution.entry_points
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entry_points)
    monkeypatch.delenv("AGENTGYM_LOAD_PLUGINS", raising=False)
    monkeypatch.delenv("AGENTGYM_BLOCK_PLUGINS", raising=False)
    return monkeypatch


def test_installed_packages_are_found_by_their_entry_points(two_packages):
    found = installed_plugins()
    assert [
        (known.kind, known.name, known.package, known.version) for known in found.registrations
    ] == [
        (kind, *names)
        for kind in NOUNS
        for names in (("agentgym-sun", "agentgym-sun", "1.0"), ("moon-pack", "Moon_Pack", "2.0"))
    ]
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("load", "block", "expected", "left_out"),
    [
        ("agentgym-sun", None, ["agentgym-sun"], ("Moon_Pack",)),
        ("", None, [], ("Moon_Pack", "agentgym-sun")),
        (None, "moon.pack", ["agentgym-sun"], ("Moon_Pack",)),
        ("agentgym_sun, moon-pack", "agentgym-sun", ["moon-pack"], ("agentgym-sun",)),
    ],
)
def test_variables_choose_packages(two_packages, load, block, expected, left_out):
    if load is not None:
        two_packages.setenv("AGENTGYM_LOAD_PLUGINS", load)
    if block is not None:
        two_packages.setenv("AGENTGYM_BLOCK_PLUGINS", block)
    found = installed_plugins()
    assert [(known.kind, known.name) for known in found.registrations] == [
        (kind, name) for kind in NOUNS for name in expected
    ], "of every kind"
    assert found.left_out == left_out


def test_a_variable_that_names_no_package_is_an_error(two_packages):
    two_packages.setenv("AGENTGYM_BLOCK_PLUGINS", "agentgym-sum")
    with pytest.raises(ConfigError) as error:
        installed_plugins()
    assert str(error.value) == (
        "AGENTGYM_BLOCK_PLUGINS names 'agentgym-sum', which is no installed plugin package. "
        "Did you mean agentgym-sun? Installed: Moon_Pack, agentgym-sun"
    )


def test_the_core_registers_itself_even_if_no_plugin_is_asked_for(monkeypatch):
    monkeypatch.setenv("AGENTGYM_LOAD_PLUGINS", "")
    monkeypatch.delenv("AGENTGYM_BLOCK_PLUGINS", raising=False)
    found = installed_plugins()
    assert {known.package for known in found.registrations} == {"agentgym-core"}
    assert found.broken == ()


def test_a_module_at_hand_can_be_loaded_without_entry_points():
    module = ModuleType("toy_plugin")
    module.register_environments = environments("toy")  # type: ignore[attr-defined]
    broken = ModuleType("broken_plugin")
    broken.register_environments = environments("Toy")  # type: ignore[attr-defined]
    found = load_plugins([PluginSource.of_module(module), PluginSource.of_module(broken)])
    assert [(known.name, known.package) for known in found.registrations] == [("toy", "toy_plugin")]
    assert found.broken == (
        BrokenPlugin(
            package="broken_plugin",
            version="0",
            entry_point="broken_plugin",
            error="register_environments: names are kebab-case, such as 'guess-number', got 'Toy'",
        ),
    )
