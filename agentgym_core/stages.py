"""From a run's document and the overrides on it to one whole document for each stage."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import attrs

from agentgym_core.document import Document, is_block, merge, merge_documents
from agentgym_core.errors import ConfigError
from agentgym_core.plugins import Kind
from agentgym_core.settings import EvaluationConfig, Limits, TrainingConfig
from agentgym_core.structure import structure, unknown_key
from agentgym_core.wording import shown

COMPONENTS: Mapping[str, Kind] = {
    "agent": "agent",
    "algorithm": "algorithm",
    "advantage": "advantage",
    "rounds": "rounds",
    "tasks": "task-sampler",
    "engine": "engine",
    "backend": "backend",
}
"""Keys whose block names a component, apart from `environment`, `environments` and `reward`."""
SETTINGS: Mapping[str, Any] = {
    "limits": Limits,
    "training": TrainingConfig,
    "evaluation": EvaluationConfig | None,
}
"""Keys whose block is plain settings."""
SHARED_KEYS = ("seed", "environment", "environments", *COMPONENTS, "reward", *SETTINGS)
"""What a run says for all its stages and a stage may say for itself."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RUN_KEYS = ("name", "output", "trackers", "model", *SHARED_KEYS, "stages")
_STAGE_KEYS = ("name", "model", *SHARED_KEYS)
_DEFAULTS: Document = {
    "output": "runs",
    "trackers": None,
    "seed": 0,
    "rounds": {"use": "fixed"},
    "tasks": {"use": "uniform"},
    "reward": None,
    "evaluation": None,
}


@attrs.frozen(kw_only=True)
class StageDocument:
    """Everything that one stage is made of, not yet checked against any class."""

    values: Document
    index: int | None = None
    """Its number in `stages`; None if the run has no such list."""
    own: frozenset[str] = frozenset()
    """Keys that the stage says for itself."""

    def path(self, key: str) -> str:
        """Where the user finds the key's value in the file."""
        return f"stages.{self.index}.{key}" if key in self.own else key

    @property
    def from_base(self) -> bool:
        """Whether it starts from the run's `model`: the first does, later ones if they say so."""
        if "model" not in self.own:
            return not self.index
        path = self.path("model")
        start = structure(Literal["previous", "base"], self.values["model"], path)
        if start == "previous" and self.index == 0:
            raise ConfigError(f"{path}: the first stage has no previous one. Leave the key out")
        return start == "base"


def split_stages(document: Document, changes: Document) -> tuple[Document, list[StageDocument]]:
    """Put the overrides over the document, and what each stage says over what the run says.

    From weak to strong: the defaults, the file, a stage in the file, overrides, overrides of that
    stage (`stages.1.training.num_steps=3`).

    Returns:
        The run's own document, and one for each stage; a run without `stages` has one.

    Raises:
        ConfigError: a key is unknown, or `stages` is no list of blocks.
    """
    shared_changes = {key: value for key, value in changes.items() if key != "stages"}
    run = merge_documents(merge_documents(_DEFAULTS, document), shared_changes)
    _check_keys(run, _RUN_KEYS, "")
    if "stages" not in run and "stages" not in changes:
        return run, [StageDocument(values=_shared(run))]
    if "stages" not in run and is_block(changes["stages"]):
        number = next(iter(changes["stages"]), 0)
        raise ConfigError(
            f"stages.{number}: this run has no list of stages; it is one, whose keys stand by "
            f"themselves: leave out `stages.{number}.`"
        )
    wrong = [key for key in changes.get("stages", ()) if not str(key).isdecimal()]
    if "stages" in run and is_block(changes.get("stages")) and wrong:
        raise ConfigError(
            f"stages.{wrong[0]}: stages are numbered from 0: stages.0, stages.1, …; a name is no "
            "number"
        )
    stages = merge(run.get("stages"), changes.get("stages", {}), "stages")
    if not isinstance(stages, list) or not stages:
        given = changes.get("stages", {})
        given = run.get("stages") if is_block(given) else given
        raise ConfigError(f"stages: expected a list of blocks, got {shown(given)}")
    return run, [
        _stage_document(run, shared_changes, index, stage, changes)
        for index, stage in enumerate(cast("list[Any]", stages))
    ]


def stage_names(stages: Sequence[StageDocument], algorithms: Sequence[str]) -> list[str]:
    """A stage's `name`, or the name of its algorithm, made to differ from the others."""
    given = [
        folder_name(stage.values, stage.path("name")) if "name" in stage.own else None
        for stage in stages
    ]
    for index, name in enumerate(given):
        if name is not None and name in given[:index]:
            raise ConfigError(f"stages.{index}.name: another stage is called {name!r}")
    return distinct(given, algorithms)


def distinct(given: Sequence[str | None], fallbacks: Sequence[str]) -> list[str]:
    """Each given name, or else its fallback, with -2, -3, … where that is taken."""
    taken = set(given)
    names: list[str] = []
    for name, fallback in zip(given, fallbacks, strict=True):
        if name is None:
            numbered = (f"{fallback}-{number}" for number in itertools.count(2))
            name = next(n for n in itertools.chain([fallback], numbered) if n not in taken)
        taken.add(name)
        names.append(name)
    return names


def folder_name(document: Document, path: str) -> str:
    """The document's `name`, which a folder will have."""
    name = structure(str, required(document, "name"), path)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{path}: expected a name for a folder, of letters, digits, '.', '_' and '-', "
            f"got {name!r}"
        )
    return name


def required(document: Document, key: str) -> Any:
    """The value of a key that has no default."""
    if key not in document:
        raise ConfigError(f"{key}: required field missing")
    return document[key]


def _stage_document(
    run: Document, shared_changes: Document, index: int, stage: Any, changes: Document
) -> StageDocument:
    if not is_block(stage):
        raise ConfigError(f"stages.{index}: expected a block of keys, got {shown(stage)}")
    _check_keys(stage, _STAGE_KEYS, f"stages.{index}")
    values = merge_documents(_shared(run), stage)
    values = merge_documents(values, _shared(shared_changes))
    if is_block(by_index := changes.get("stages")):
        values = merge_documents(values, by_index.get(str(index), {}))
    return StageDocument(values=values, index=index, own=frozenset(stage))


def _shared(document: Document) -> Document:
    return {key: value for key, value in document.items() if key in SHARED_KEYS}


def _check_keys(document: Document, keys: Sequence[str], path: str) -> None:
    for key in document:
        if key not in keys:
            raise unknown_key(key, keys, path)
