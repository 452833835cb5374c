"""Installed plugins: from entry points to registrations, without importing any component.

Entry points of the group `agentgym` are scanned first and loaded one by one. A plugin that breaks
the contract, or cannot be imported, becomes a record and registers nothing; the others go on. Only
a name that two packages claim stops everything: no order of loading would be the right one.

`AGENTGYM_LOAD_PLUGINS` and `AGENTGYM_BLOCK_PLUGINS` hold package names, divided by commas. The
first loads only those (and the core's own components; empty loads nothing else), the second leaves
them out.

The records are dataclasses, not attrs classes: importing attrs would take a fifth of the time in
which `agentgym plugins` answers.
"""

import dataclasses
import importlib
import importlib.metadata
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Literal

import pluggy

from agentgym_core import hookspecs
from agentgym_core.errors import ConfigError, PluginError
from agentgym_core.wording import did_you_mean, one_line

Kind = Literal[
    "environment",
    "agent",
    "algorithm",
    "advantage",
    "rounds",
    "task-sampler",
    "reward",
    "engine",
    "backend",
    "tracker",
    "command",
]

HOOKS: Mapping[str, Kind] = {
    "register_environments": "environment",
    "register_agents": "agent",
    "register_algorithms": "algorithm",
    "register_advantage_estimators": "advantage",
    "register_round_schedulers": "rounds",
    "register_task_samplers": "task-sampler",
    "register_rewards": "reward",
    "register_engines": "engine",
    "register_backends": "backend",
    "register_trackers": "tracker",
    "register_commands": "command",
}
"""What each hook registers."""

NOUNS: Mapping[Kind, str] = {
    "environment": "environment",
    "agent": "agent",
    "algorithm": "algorithm",
    "advantage": "advantage estimator",
    "rounds": "round scheduler",
    "task-sampler": "task sampler",
    "reward": "reward",
    "engine": "engine",
    "backend": "backend",
    "tracker": "tracker",
    "command": "command",
}
"""What messages call a kind."""

KEBAB_CASE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""What the name of a component looks like."""

_CORE = "agentgym-core"
_IMPORT_STRING = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginSource:
    """Where a plugin comes from; nothing of it is imported yet."""

    entry_point: str
    package: str
    version: str
    load: Callable[[], object]

    @classmethod
    def of_module(cls, module: ModuleType, package: str | None = None) -> "PluginSource":
        """A module at hand, for tests. Its own name stands in for a package's."""
        return cls(
            entry_point=module.__name__,
            package=package or module.__name__,
            version="0",
            load=lambda: module,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """A name that a plugin gave to a component.

    Example: Registration(kind="environment", name="textcraft",
        import_string="agentgym_textcraft.environment:TextCraft", package="agentgym-textcraft",
        version="0.1.0", hook="register_environments")
    """

    kind: Kind
    name: str
    import_string: str
    package: str
    version: str
    hook: str

    @property
    def origin(self) -> str:
        """What it names, and whose it is, for errors."""
        return f"{self.import_string} (package {self.package} {self.version})"

    def load(self) -> Any:
        """Import what it names.

        Raises:
            PluginError: that fails, for whatever reason.
        """
        module, _, name = self.import_string.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (Exception, SystemExit) as error:  # a plugin's import may raise anything
            raise PluginError(f"cannot import {self.origin}: {_describe(error)}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenPlugin:
    """A plugin that registers nothing, and why."""

    package: str
    version: str
    entry_point: str
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugins:
    """Everything that is installed."""

    registrations: tuple[Registration, ...] = ()
    """Sorted by kind and name."""
    broken: tuple[BrokenPlugin, ...] = ()
    left_out: tuple[str, ...] = ()
    """Packages that the environment variables keep from loading."""


def installed_plugins() -> Plugins:
    """Load the plugins of all installed packages.

    Raises:
        PluginError: two packages claim one entry-point name, or one name of a kind.
        ConfigError: an environment variable names a package that is not an installed plugin.
    """
    sources = [
        PluginSource(
            entry_point=entry_point.name,
            package=entry_point.dist.name,
            version=entry_point.dist.version,
            load=entry_point.load,
        )
        for entry_point in importlib.metadata.entry_points(group="agentgym")
        if entry_point.dist is not None
    ]
    chosen = _choose({source.package for source in sources}, os.environ)
    plugins = load_plugins(source for source in sources if source.package in chosen)
    left_out = {source.package for source in sources} - chosen
    return dataclasses.replace(plugins, left_out=tuple(sorted(left_out)))


def load_plugins(sources: Iterable[PluginSource]) -> Plugins:
    """Load each plugin by itself and collect what it registers.

    Raises:
        PluginError: two sources claim one entry-point name, or one name of a kind.
    """
    sources = sorted(sources, key=lambda source: (source.package, source.entry_point))
    _refuse_shared_entry_points(sources)
    registrations: list[Registration] = []
    broken: list[BrokenPlugin] = []
    for source in sources:
        try:
            registrations += _collect(source)
        except (Exception, SystemExit) as error:  # whatever a plugin does, the others load
            broken.append(
                BrokenPlugin(
                    package=source.package,
                    version=source.version,
                    entry_point=source.entry_point,
                    error=_describe(error),
                )
            )
    _refuse_shared_names(registrations)
    kinds = list(NOUNS)
    registrations.sort(key=lambda registration: (kinds.index(registration.kind), registration.name))
    return Plugins(registrations=tuple(registrations), broken=tuple(broken))


def _choose(packages: set[str], environ: Mapping[str, str]) -> set[str]:
    """The packages that the environment variables let through."""
    chosen = set(packages)
    if "AGENTGYM_LOAD_PLUGINS" in environ:
        chosen = _named("AGENTGYM_LOAD_PLUGINS", packages, environ) | (packages & {_CORE})
    if "AGENTGYM_BLOCK_PLUGINS" in environ:
        chosen -= _named("AGENTGYM_BLOCK_PLUGINS", packages, environ)
    return chosen


def _named(variable: str, packages: set[str], environ: Mapping[str, str]) -> set[str]:
    by_canonical_name = {_canonical(package): package for package in packages}
    named: set[str] = set()
    for word in filter(None, map(str.strip, environ[variable].split(","))):
        if _canonical(word) not in by_canonical_name:
            near = did_you_mean(_canonical(word), by_canonical_name)
            listed = ", ".join(sorted(packages))
            raise ConfigError(
                f"{variable} names {word!r}, which is no installed plugin package.{near} "
                f"Installed: {listed}"
            )
        named.add(by_canonical_name[_canonical(word)])
    return named


def _canonical(package: str) -> str:
    """The form in which spellings of one package name are equal (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _collect(source: PluginSource) -> list[Registration]:
    """Everything that one plugin registers; all of it or, on any fault, nothing."""
    module = source.load()
    if not isinstance(module, ModuleType):
        raise PluginError("its entry point must name a module, without a colon")
    # A manager of its own, so that a broken plugin leaves no trace in the others' hooks.
    manager = pluggy.PluginManager("agentgym")
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    _check_hooks(manager, module)
    registrations: list[Registration] = []
    for hook in HOOKS:
        getattr(manager.hook, hook)(register=partial(_register, registrations, source, hook))
    return registrations


def _check_hooks(manager: pluggy.PluginManager, module: ModuleType) -> None:
    """Refuse what pluggy would pass over in silence."""
    callers = manager.get_hookcallers(module) or []
    for caller in callers:
        for implementation in caller.get_hookimpls():
            if not (caller.has_spec() or implementation.optionalhook):
                near = did_you_mean(caller.name, HOOKS)
                raise PluginError(f"implements {caller.name}, which is no hook.{near}")
            if implementation.kwargnames:
                argument = implementation.kwargnames[0]
                raise PluginError(
                    f"{caller.name} gives its argument {argument!r} a default value, so the hook "
                    "would never be handed one. Remove the default"
                )
    implemented = {caller.name for caller in callers}
    for hook in HOOKS:
        if hasattr(module, hook) and hook not in implemented:
            raise PluginError(f"{hook} lacks the decorator @agentgym_core.hookimpl")


def _register(
    registrations: list[Registration],
    source: PluginSource,
    hook: str,
    name: str,
    import_string: str,
) -> None:
    """The `register` that a hook is handed."""
    if not KEBAB_CASE.fullmatch(name):
        raise PluginError(f"{hook}: names are kebab-case, such as 'guess-number', got {name!r}")
    if not _IMPORT_STRING.fullmatch(import_string):
        raise PluginError(
            f"{hook}: {name!r} needs an import string such as 'package.module:Class', "
            f"got {import_string!r}"
        )
    kind = HOOKS[hook]
    if any(known.kind == kind and known.name == name for known in registrations):
        raise PluginError(f"{hook}: {name!r} is registered twice")
    registrations.append(
        Registration(
            kind=kind,
            name=name,
            import_string=import_string,
            package=source.package,
            version=source.version,
            hook=hook,
        )
    )


def _refuse_shared_entry_points(sources: Sequence[PluginSource]) -> None:
    by_name: defaultdict[str, list[PluginSource]] = defaultdict(list)
    for source in sources:
        by_name[source.entry_point].append(source)
    for name, rivals in by_name.items():
        if len(rivals) > 1:
            raise _clash(f"have an entry point called {name!r}", rivals[0], rivals[1])


def _refuse_shared_names(registrations: Sequence[Registration]) -> None:
    owners: dict[tuple[Kind, str], Registration] = {}
    for registration in registrations:
        owner = owners.setdefault((registration.kind, registration.name), registration)
        if owner is not registration:
            claim = f"register the {NOUNS[registration.kind]} {registration.name!r}"
            raise _clash(claim, owner, registration)


def _clash(
    claim: str, first: PluginSource | Registration, second: PluginSource | Registration
) -> PluginError:
    return PluginError(
        f"two plugins {claim}: {first.package} {first.version} and {second.package} "
        f"{second.version}. Uninstall one, or leave one out: "
        f"AGENTGYM_BLOCK_PLUGINS={second.package}"
    )


def _describe(error: BaseException) -> str:
    text = one_line(error)
    return text if isinstance(error, PluginError) else f"{type(error).__name__}: {text}"
