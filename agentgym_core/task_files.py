"""The task sampler `from-file`: the tasks that a file names, as AgentGym-RL lists them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from agentgym_core.errors import ConfigError
from agentgym_core.protocols import State, TaskPool, TaskSampler
from agentgym_core.samplers import check_pools, shares, shuffled_places
from agentgym_core.types import Task
from agentgym_core.wording import did_you_mean, shown


@attrs.frozen(kw_only=True)
class FileTaskSampler(TaskSampler):
    """Goes through the tasks of a file, epoch after epoch.

    The file is a JSON list of `{"item_id": "textcraft_0"}`, rows of that form in JSONL, or one id a
    line; other keys of a row are passed over. An id that stands twice is played twice an epoch.

    An environment is given the ids that are tasks of its split. Between environments the weights
    decide, as in `uniform`, and not how the file mixes them.

    The state is the file's digest: a run does not go on with another file.
    """

    path: Path
    shuffle: bool = True
    """Whether each epoch has an order of its own; otherwise it is the file's."""

    def initial_state(self) -> State:
        """Read the file.

        Raises:
            ConfigError: it is missing, empty, or not of any of the forms.
        """
        return {"sha256": _read(self.path)[1]}

    def select(
        self, pools: Sequence[TaskPool], num_tasks: int, *, step: int, seed: int, state: State
    ) -> tuple[tuple[TaskPool, Task], ...]:
        """The tasks of a step, pool by pool.

        Raises:
            ConfigError: the file has changed, names a task that no pool has, or has none of a pool.
        """
        ids, digest = _read(self.path)
        if digest != state["sha256"]:
            raise ConfigError(
                f"{self.path} has changed since the run began with it. Put the old one back, or "
                "give the run another name"
            )
        check_pools(pools)
        listed = [_listed(pool, ids) for pool in pools]
        _check_listed(pools, listed, ids, self.path)
        return tuple(
            (pool, tasks[place])
            for pool, tasks, (first, end) in zip(
                pools, listed, shares(pools, num_tasks, step), strict=True
            )
            for place in self._places(pool, len(tasks), first, end, seed)
        )

    def _places(self, pool: TaskPool, size: int, first: int, end: int, seed: int) -> list[int]:
        if self.shuffle:
            return shuffled_places(size, first, end, seed, "tasks", pool.environment)
        return [draw % size for draw in range(first, end)]


def _listed(pool: TaskPool, ids: Sequence[str]) -> list[Task]:
    """The pool's tasks that the file names, in the file's order."""
    tasks = {task.id: task for task in pool.tasks}
    return [tasks[id_] for id_ in ids if id_ in tasks]


def _check_listed(
    pools: Sequence[TaskPool], listed: Sequence[Sequence[Task]], ids: Sequence[str], path: Path
) -> None:
    known = {task.id for pool in pools for task in pool.tasks}
    unknown = [id_ for id_ in ids if id_ not in known]
    if unknown:
        names = ", ".join(repr(pool.environment) for pool in pools)
        raise ConfigError(
            f"{path} names {unknown[0]!r}, which is no task of {names}"
            f"{f', and {len(unknown) - 1} more' if unknown[1:] else ''}. Is it of another `split`?"
            f"{did_you_mean(unknown[0], sorted(known))}"
        )
    for pool, tasks in zip(pools, listed, strict=True):
        if not tasks:
            raise ConfigError(f"{path} names no task of environment {pool.environment!r}")


def _read(path: Path) -> tuple[list[str], str]:
    """The ids of the file, and its digest."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}, from which tasks were to be read") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read tasks from {path}: {error}") from error
    ids = _parse(text, path)
    if not ids:
        raise ConfigError(f"{path} names no tasks")
    return ids, hashlib.sha256(content).hexdigest()


def _parse(text: str, path: Path) -> list[str]:
    if text.lstrip().startswith("["):
        entries = cast("list[Any]", _parse_json(text, f"{path}"))
        return [_item_id(entry, f"{path}: entry {n}") for n, entry in enumerate(entries)]
    lines = {n: line.strip() for n, line in enumerate(text.splitlines(), 1) if line.strip()}
    if text.lstrip().startswith("{"):
        return [
            _item_id(_parse_json(line, f"{path}:{n}"), f"{path}:{n}") for n, line in lines.items()
        ]
    return list(lines.values())


def _parse_json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{place}: no JSON: {error}") from error


def _item_id(entry: Any, place: str) -> str:
    """Of `{"item_id": "textcraft_0"}`, or the id alone."""
    id_ = cast("Mapping[str, Any]", entry).get("item_id") if isinstance(entry, Mapping) else entry
    if not isinstance(id_, str):
        raise ConfigError(f'{place}: expected {{"item_id": "…"}}, got {shown(entry)}')
    return id_
