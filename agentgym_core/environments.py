"""The `environment` block: a world, its share of the mix, and where its sessions run."""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from agentgym_core.catalog import Catalog
from agentgym_core.document import Document, is_block
from agentgym_core.errors import ConfigError
from agentgym_core.protocols import Environment
from agentgym_core.serving.distant import DistantEnvironment
from agentgym_core.serving.host import HostSettings
from agentgym_core.structure import construct, join, structure, unstructure

Dialect = Literal["agentgym", "upstream"]
"""What the servers of `env_addr` speak: this project's protocol, or that of AgentGym's servers."""

RUN_KEYS: Mapping[str, Any] = {
    "weight": float,
    "split": str,
    "host": HostSettings,
    "python": str | None,
    "env_addr": str | tuple[str, ...] | None,
    "dialect": Dialect | None,
}
"""Keys of the block that belong to the run; all others are fields of the environment."""


@attrs.frozen(kw_only=True)
class EnvironmentBlock:
    """One environment of the mix."""

    name: str
    """Its `use`; the second block of one `use` is called `<use>-2`."""
    use: str
    component: Environment
    weight: float = 1.0
    """Share of the tasks of a training step, in proportion to the other weights."""
    split: str = "train"
    """The split whose tasks are trained on."""
    host: HostSettings = attrs.field(factory=HostSettings)
    """The processes that its sessions run in."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight must be above 0, got {self.weight:g}")

    def to_document(self) -> Document:
        """The block with every key resolved."""
        block: Document = {"use": self.use, "weight": self.weight, "split": self.split}
        if self.host != HostSettings():
            block["host"] = unstructure(self.host)
        if isinstance(self.component, DistantEnvironment):
            return {**block, **self.component.block()}
        return {**block, **unstructure(self.component)}


def environment_block(
    block: Any, path: str, catalog: Catalog, name: str | None = None
) -> EnvironmentBlock:
    """Build the environment that a block describes, here or as one that lives elsewhere.

    Raises:
        ConfigError: the block, or a value in it, does not fit.
        ComponentNotFoundError, PluginError: as `Catalog.build`.
    """
    fields: Any = {"use": block} if isinstance(block, str) else block
    reserved: dict[str, Any] = {}
    if is_block(fields):
        fields = dict(fields)
        for key in RUN_KEYS.keys() & fields.keys():
            reserved[key] = structure(RUN_KEYS[key], fields.pop(key), join(path, key))
    elsewhere = {key: reserved.pop(key, None) for key in ("python", "env_addr", "dialect")}
    component = _elsewhere(fields, elsewhere, path, catalog)
    if component is None:
        component = catalog.build("environment", fields, path)
    use = fields["use"]
    _check_host(component, reserved.get("host"), path)
    given = {"name": name or use, "use": use, "component": component, **reserved}
    return construct(EnvironmentBlock, given, path)


def _elsewhere(
    fields: Any, keys: Mapping[str, Any], path: str, catalog: Catalog
) -> Environment | None:
    """The environment of another interpreter or of servers, if the block names them."""
    python, addresses, dialect = keys["python"], keys["env_addr"], keys["dialect"]
    if dialect is not None and addresses is None:
        raise ConfigError(f"{join(path, 'dialect')}: it has no effect without env_addr")
    if python is None and addresses is None:
        return None
    if python is not None and addresses is not None:
        raise ConfigError(
            f"{join(path, 'python')}: sessions behind env_addr run where the servers do. Give one "
            "of the two keys"
        )
    if not is_block(fields) or not isinstance(fields.get("use"), str):
        raise ConfigError(f"{join(path, 'use')}: required field missing")
    options = {key: value for key, value in fields.items() if key != "use"}
    if python is not None:
        from agentgym_core.serving.isolated import IsolatedEnvironment

        return IsolatedEnvironment.found(fields["use"], python, options, path)
    from agentgym_core.serving.client import remote_environment

    addresses = (addresses,) if isinstance(addresses, str) else tuple(addresses or ())
    return remote_environment(fields["use"], addresses, options, dialect, path, catalog)


def _check_host(component: Environment, host: HostSettings | None, path: str) -> None:
    """Refuse settings that nothing would read."""
    if host is None or host.workers is not None or component.runs_in == "process":
        return
    raise ConfigError(
        f"{join(path, 'host')}: this environment runs in the process of the run, which has no "
        "workers to set. Give host.workers to let it run in workers, or leave `host` out"
    )
