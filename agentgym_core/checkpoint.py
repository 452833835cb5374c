"""Checkpoints: `checkpoints/<stage>/step-000123/`, whole or absent.

Each holds what the trainer saved; `state.json`: the number of finished steps, the state of the
round scheduler and task sampler, and the best evaluation so far; and `manifest.json`: size and
SHA-256 of every other file. It is written aside and renamed when whole. What happens to it later,
on a disk that loses or alters files, is found when it is read.
"""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from agentgym_core.errors import CheckpointError, RankError
from agentgym_core.files import write_json
from agentgym_core.protocols import Trainer
from agentgym_core.ranks import ALONE, Ranks, on_first, write_together

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    folder: Path
    step: int
    """Training steps that are in it."""
    state: Mapping[str, Any]


def save(
    folder: Path, step: int, state: Mapping[str, Any], trainer: Trainer, ranks: Ranks = ALONE
) -> None:
    """Write a checkpoint of a stage. One of that step that is not whole is replaced.

    Raises:
        CheckpointError: the disk is full or read-only; earlier checkpoints stand.
        RankError: another rank failed.
    """
    path = folder / f"step-{step:06d}"

    def finish(aside: Path) -> None:
        write_json(aside / "state.json", {"step": step, **state})
        write_manifest(aside)

    if on_first(ranks, lambda: _stands(path)):
        return
    try:
        write_together(ranks, path, trainer.save, finish)
    except (CheckpointError, RankError):
        raise
    except Exception as error:  # libraries that write tensors have errors of their own
        raise CheckpointError(
            f"cannot write the checkpoint {path}: {error}. Earlier ones stand: mend that, and "
            "give the same command again"
        ) from error


def _stands(path: Path) -> bool:
    """Whether that checkpoint is there, and whole; one that is not is removed."""
    if path.exists() and problem(path):
        shutil.rmtree(path)
    return path.exists()


def write_manifest(folder: Path) -> None:
    """Write down every file of a checkpoint, by its path in it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    described = {str(file.relative_to(folder)): _describe(file) for file in files}
    write_json(folder / MANIFEST, {"files": described})


def problem(folder: Path) -> str:
    """What is wrong with a checkpoint; empty if it is as it was written."""
    try:
        written = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, described in written.items():
            file = folder / name
            size = file.stat().st_size
            if size != described["size"]:
                return f"{name} has {size} bytes of {described['size']}"
        for name, described in written.items():
            if _describe(folder / name) != described:
                return f"{name} has other content than was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} or a file of it cannot be read: {error}"
    return ""


def latest(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint of a stage, if there is any checkpoint.

    Those after it, which something has damaged, are passed over with a warning.

    Raises:
        CheckpointError: there are some, but none is whole.
    """
    return latest_until(folder, None)


def latest_until(folder: Path, last_step: int | None) -> Checkpoint | None:
    """As `latest`, among those with at most `last_step` steps."""
    found = [path for path in _steps(folder) if last_step is None or _step(path) <= last_step]
    reason = ""
    for path in reversed(found):
        reason = problem(path)
        if not reason:
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
            return Checkpoint(folder=path, step=state["step"], state=state)
        log.warning("%s is not whole and is passed over: %s", path, reason)
    if found:
        raise CheckpointError(
            f"none of the {len(found)} checkpoints in {folder} is whole. The first, "
            f"{found[0].name}: {reason}. Remove that folder to start the stage anew"
        )
    return None


def keep_last(folder: Path, num: int, best: int | None = None) -> None:
    """Remove all but the last `num` checkpoints of a stage, and but that of the `best` step.

    Each is put aside first: what a kill leaves of it is no checkpoint, but a leftover.
    """
    for path in _steps(folder)[:-num]:
        if _step(path) != best:
            aside = path.with_name(f".{path.name}.old")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)


def _steps(folder: Path) -> list[Path]:
    found = (path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name))
    return sorted(found, key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _describe(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return {"size": file.stat().st_size, "sha256": digest}
