"""From a name in the YAML file to a built component."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

import attrs

from agentgym_core.errors import ComponentNotFoundError, ConfigError, PluginError
from agentgym_core.plugins import (
    NOUNS,
    Kind,
    Plugins,
    PluginSource,
    Registration,
    installed_plugins,
    load_plugins,
)
from agentgym_core.structure import join, structure
from agentgym_core.wording import did_you_mean, shown

_SHIPPED_BY: Mapping[tuple[Kind, str], str] = {
    ("environment", "babyai"): "agentgym-babyai",
    ("environment", "sciworld"): "agentgym-sciworld",
    ("environment", "searchqa"): "agentgym-searchqa",
    ("environment", "textcraft"): "agentgym-textcraft",
    ("environment", "webarena"): "agentgym-webarena",
    ("algorithm", "dpo"): "agentgym-dpo",
    ("algorithm", "evol"): "agentgym-evol",
    ("algorithm", "grpo"): "agentgym-grpo",
    ("algorithm", "ppo"): "agentgym-ppo",
    ("algorithm", "reinforce-pp"): "agentgym-reinforce-pp",
    ("algorithm", "rloo"): "agentgym-rloo",
    ("algorithm", "sft"): "agentgym-sft",
    ("advantage", "gae"): "agentgym-ppo",
    ("advantage", "gae-turn"): "agentgym-ppo",
    ("advantage", "gigpo"): "agentgym-grpo",
    ("advantage", "group-relative"): "agentgym-grpo",
    ("advantage", "leave-one-out"): "agentgym-rloo",
    ("advantage", "reinforce-pp"): "agentgym-reinforce-pp",
    ("advantage", "reinforce-pp-baseline"): "agentgym-reinforce-pp",
    ("rounds", "scaling-inter"): "agentgym-scaling-inter",
    ("engine", "local"): "agentgym-torch",
    ("engine", "vllm"): "agentgym-vllm",
    ("backend", "deepspeed"): "agentgym-deepspeed",
    ("backend", "torch"): "agentgym-torch",
    ("command", "view"): "agentgym-viewer",
}
"""Where this project's own components live. Read only to say what to install."""


_CHOICE = "AGENTGYM_LOAD_PLUGINS or AGENTGYM_BLOCK_PLUGINS"


def shipped_by(name: str) -> str | None:
    """The package of this project that brings a component of that name, if one does."""
    return next((package for (_, known), package in _SHIPPED_BY.items() if known == name), None)


def how_to_install(package: str) -> str:
    """A command for one of this project's packages, whichever way the core was installed."""
    return f"pip install {package}, or from a clone pip install ./plugins/{package}"


@attrs.frozen
class Catalog:
    """The registered components by kind and name. Importing one waits until it is asked for."""

    plugins: Plugins

    @classmethod
    def installed(cls) -> "Catalog":
        """Of all installed packages; raises what `installed_plugins` raises."""
        return cls(installed_plugins())

    @classmethod
    def of_modules(cls, *modules: ModuleType) -> "Catalog":
        """Of these plugin modules and nothing else, for tests."""
        return cls(load_plugins(PluginSource.of_module(module) for module in modules))

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Registered names, sorted."""
        return tuple(registration.name for registration in self._of(kind))

    def find(self, kind: Kind, name: str) -> type[Any]:
        """Import the component class of that name.

        Raises:
            ComponentNotFoundError: nothing of that name is registered; says what to do.
            PluginError: it cannot be imported, or is no frozen attrs class.
        """
        for registration in self._of(kind):
            if registration.name == name:
                return _import_component(registration)
        raise self.not_found(kind, name)

    def build(self, kind: Kind, block: Any, path: str) -> Any:
        """Build the component that a YAML block describes.

        Args:
            kind: what the block must name.
            block: `{use: name, **fields}`, or the name alone.
            path: where the block stands in the file, for errors.

        Raises:
            ConfigError: the block, or a value in it, does not fit.
            ComponentNotFoundError, PluginError: see `find`.
        """
        if isinstance(block, str):
            block = {"use": block}
        if not isinstance(block, Mapping):
            raise ConfigError(f"{path}: expected a name or a block of keys, got {shown(block)}")
        fields = dict(cast("Mapping[str, Any]", block))
        if "use" not in fields:
            installed = ", ".join(self.names(kind)) or "none"
            raise ConfigError(
                f"{join(path, 'use')}: required field missing. Installed: {installed}"
            )
        name = structure(str, fields.pop("use"), join(path, "use"))
        cls = self.find(kind, name)
        try:
            return structure(cls, fields, path)
        except ConfigError as error:
            owner = next(known for known in self._of(kind) if known.name == name)
            if owner.package == "agentgym-core":
                raise
            raise ConfigError(f"{error} (package {owner.package} {owner.version})") from error

    def not_found(self, kind: Kind, name: str) -> ComponentNotFoundError:
        """The error for a name that nobody registers; says what to do."""
        names = self.names(kind)
        message = (
            f"no {NOUNS[kind]} is called {name!r}. Installed: {', '.join(names) or 'none'}."
            f"{did_you_mean(name, names)}"
        )
        package = _SHIPPED_BY.get((kind, name))
        broken = self.plugins.broken
        left_out = self.plugins.left_out
        if package in left_out:
            message += f" It ships in {package}, which {_CHOICE} leaves out"
        elif package and package not in {plugin.package for plugin in broken}:
            message += f" It ships in a plugin that is not installed: {how_to_install(package)}"
        elif not package and left_out:
            message += f" It may be in what {_CHOICE} leaves out: {', '.join(left_out)}"
        elif not broken and not did_you_mean(name, names):
            message += (
                " If another package brings it, pip install that package here; `agentgym plugins` "
                "lists what is installed"
            )
        if broken:
            listed = "; ".join(f"{p.package} {p.version} ({p.error})" for p in broken)
            message += f" Broken plugins that may hold it: {listed}. Mend or reinstall them"
        return ComponentNotFoundError(message)

    def _of(self, kind: Kind) -> list[Registration]:
        return [known for known in self.plugins.registrations if known.kind == kind]


def _import_component(registration: Registration) -> type[Any]:
    """Import the class and hold it to rule: frozen, so that it can be shared and written down."""
    cls = registration.load()
    try:
        is_frozen = attrs.inspect(cls).is_frozen
    except (TypeError, attrs.exceptions.NotAnAttrsClassError):
        is_frozen = False
    if not is_frozen:
        raise PluginError(
            f"{registration.origin} is no frozen attrs class. "
            "Decorate it with @attrs.frozen(kw_only=True)"
        )
    return cls
