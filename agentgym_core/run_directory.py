"""The run directory, and the configuration that it was begun with and goes on with."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from agentgym_core.config import Resume, RunConfig, resolved
from agentgym_core.document import Document, is_block, read_document
from agentgym_core.errors import ConfigError, RankError
from agentgym_core.files import write_text
from agentgym_core.structure import join
from agentgym_core.wording import shown


def check_resume(config: RunConfig, resume: Resume) -> None:
    """Refuse what `resume` does not allow; nothing is written.

    Raises:
        ConfigError: there is no run to go on with, or there is one already.
    """
    file = config.folder / "config.yaml"
    if resume == "always" and not file.exists():
        raise ConfigError(
            f"there is no run in {config.folder} to go on with. Mend `name` or `output`, or "
            "leave --resume out to begin one"
        )
    if resume == "never" and file.exists():
        raise ConfigError(
            f"{config.folder} holds a run already. Give this run another name, or leave "
            "--resume out to go on with that one"
        )


def open_folder(config: RunConfig) -> Path:
    """Make the run directory with its `config.yaml`, or go on with it.

    Where a run was stopped before anything came of it, another configuration begins anew.

    Raises:
        ConfigError: it holds a run with another configuration; names all differences.
    """
    file = config.folder / "config.yaml"
    document = resolved(config)
    if not file.exists():
        if _has_results(config.folder):
            raise ConfigError(
                f"{config.folder} holds results, but no config.yaml that says of what. Bring that "
                "file back, or give this run another name"
            )
        write_text(file, _to_yaml(document))
    # The folder may have been moved: where it lies is no part of what it holds, and neither is
    # who watches.
    here = {key: document[key] for key in ("output", "trackers")}
    written = _with_one_environment({**read_document(file), **here})
    differences = _differences(written, document, "")
    if differences and not _has_results(config.folder):
        for made in ("model", "demonstrations"):
            shutil.rmtree(config.folder / made, ignore_errors=True)
        write_text(file, _to_yaml(document))
    elif differences:
        raise ConfigError(
            f"{config.folder} holds a run with another configuration: {'; '.join(differences)}. "
            "Give this run another name, or begin a new one from that one's state with "
            "--fork NAME"
        )
    return config.folder


def check_same(documents: Sequence[Document]) -> None:
    """Refuse to begin where the ranks of one run were given different configurations.

    Raises:
        RankError: names all differences.
    """
    for rank, document in enumerate(documents):
        if found := _differences(document, documents[0], ""):
            raise RankError(
                f"rank {rank} was started with another configuration than rank 0: "
                f"{'; '.join(found)}. Give every rank the same command"
            )


def _with_one_environment(document: Document) -> Document:
    """A written configuration in the form of today: a list of one environment was one of many."""
    document = dict(document)
    if len(document.get("environments", ())) == 1:
        document["environment"] = document.pop("environments")[0]
    if "stages" in document:
        document["stages"] = [_with_one_environment(stage) for stage in document["stages"]]
    return document


def _to_yaml(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _has_results(folder: Path) -> bool:
    """Whether a run has come further than to its start."""
    log = folder / "metrics.jsonl"
    kept = [*folder.glob("checkpoints/*/*"), *folder.glob("policies/*")]
    return bool(kept) or (log.exists() and log.stat().st_size > 0)


def _differences(old: Any, new: Any, path: str) -> list[str]:
    """The places where two documents differ, such as `seed is 3 there and 4 here`."""
    there, here = _numbered(old), _numbered(new)
    if not is_block(there) or not is_block(here):
        return [] if old == new else [f"{path} is {shown(old)} there and {shown(new)} here"]
    keys = dict.fromkeys([*here, *there])
    return [found for k in keys for found in _differences(there.get(k), here.get(k), join(path, k))]


def _numbered(value: Any) -> Any:
    """A list as a block whose keys are its indices."""
    return dict(enumerate(cast("list[Any]", value))) if isinstance(value, list) else value
