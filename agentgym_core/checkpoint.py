"""Checkpoints: `checkpoints/<stage>/step-000123/`, whole or absent.

Each holds what the trainer saved and `state.json`: the number of finished steps and the state of
the round scheduler and task sampler. It is written aside and renamed when whole.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from agentgym_core.errors import CheckpointError
from agentgym_core.files import new_folder, write_json
from agentgym_core.protocols import Trainer


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    folder: Path
    step: int
    """Training steps that are in it."""
    state: Mapping[str, Any]


def save(folder: Path, step: int, state: Mapping[str, Any], trainer: Trainer) -> None:
    """Write a checkpoint of a stage, unless it stands already.

    Raises:
        CheckpointError: the disk is full or read-only; earlier checkpoints stand.
    """
    path = folder / f"step-{step:06d}"
    if path.exists():
        return
    try:
        with new_folder(path) as aside:
            trainer.save(aside)
            write_json(aside / "state.json", {"step": step, **state})
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {error}") from error


def latest(folder: Path) -> Checkpoint | None:
    """The last checkpoint of a stage, if there is one.

    Raises:
        CheckpointError: its `state.json` cannot be read.
    """
    found = sorted(p for p in folder.glob("step-*") if re.fullmatch(r"step-\d+", p.name))
    if not found:
        return None
    path = found[-1] / "state.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"cannot read {path}: {error}. Remove that checkpoint to go on from the one before"
        ) from error
    return Checkpoint(folder=found[-1], step=state["step"], state=state)


def keep_last(folder: Path, num: int) -> None:
    """Remove all but the last `num` checkpoints of a stage, and what a kill left half-written."""
    whole = sorted(p for p in folder.glob("step-*") if p.is_dir())
    for path in [*whole[:-num], *folder.glob(".step-*")]:
        shutil.rmtree(path, ignore_errors=True)
