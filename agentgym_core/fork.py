"""A new run that begins from the state of another, with another configuration."""

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from agentgym_core import checkpoint
from agentgym_core.config import RunConfig, StageConfig, resolved
from agentgym_core.document import Document, read_document
from agentgym_core.errors import ConfigError
from agentgym_core.files import new_folder, write_json, write_json_lines, write_text
from agentgym_core.lock import locked
from agentgym_core.metrics import MetricsLog
from agentgym_core.stages import folder_name
from agentgym_core.structure import structure

log = logging.getLogger(__name__)

_STATES = {"tasks": "tasks_state", "rounds": "rounds_state", "algorithm": "algorithm_state"}


def fork(config: RunConfig, name: str) -> RunConfig:
    """Make the run directory `name` from that of the run which the configuration names.

    It is given the model, and of each stage the last whole checkpoint within its `num_steps`, the
    metrics up to there, and the policy if the stage was finished and still is. The first stage that
    is not finished is the last to be taken over: those after it begin anew, from its new policy.
    `forked_from.json` says whence the state is. Episodes stay with the run that played them, but
    for those that a later stage learns from.

    Returns:
        The configuration under its new name, to be trained.

    Raises:
        ConfigError: there is no such run, the name is taken, or the two differ in what a state
            cannot be taken across: the model, or a `num_steps` before the first checkpoint.
        RunLockedError: the other run is being trained.
    """
    new = attrs.evolve(config, name=folder_name({"name": name}, "name"))
    source = config.folder
    if not (source / "config.yaml").exists():
        raise ConfigError(f"there is no run in {source} to fork: mend `name` or `output`")
    if new.folder.exists():
        raise ConfigError(
            f"{new.folder} exists already. Give the fork another name, or go on with that run: "
            f"leave --fork out and say name={name}"
        )
    old = read_document(source / "config.yaml")
    document = resolved(new)
    if old["model"] != document["model"]:
        raise ConfigError(
            f"the model differs from that of {source}: a fork goes on with its weights. Leave "
            "`model` as it is there, or begin a run of its own"
        )
    with locked(source), new_folder(new.folder) as aside:
        steps = _take_over(config, _stage_documents(old), source, aside)
        write_text(
            aside / "config.yaml", yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        )
        write_json(aside / "forked_from.json", {"run": str(source.resolve()), "steps": steps})
    return new


def _take_over(
    config: RunConfig, old: Mapping[str, Document], source: Path, aside: Path
) -> dict[str, int]:
    """Copy what the new run goes on with; returns the finished steps by stage."""
    if (source / "model").exists():
        _copy(source / "model", aside / "model")
    steps: dict[str, int] = {}
    for stage in config.stages:
        taken = stage.name in old and _take_over_stage(stage, old[stage.name], source, aside)
        if taken:
            steps[stage.name] = taken
        policy = source / "policies" / stage.name
        if taken != stage.training.num_steps or not policy.exists():
            break
        _copy(policy, aside / "policies" / stage.name)
    needed = {name for stage in config.stages for name in stage.algorithm.learns_from}
    for name in needed & {*steps}:
        _copy_episodes(name, source, aside)
    rows = MetricsLog(source / "metrics.jsonl").rows
    kept = [row for row in rows if row["step"] <= steps.get(row["stage"], -1)]
    write_json_lines(aside / "metrics.jsonl", kept)
    return steps


def _take_over_stage(stage: StageConfig, old: Document, source: Path, aside: Path) -> int:
    """Copy the stage's last checkpoint within its steps; returns its step, 0 if there is none."""
    folder = source / "checkpoints" / stage.name
    num_steps = stage.training.num_steps
    found = checkpoint.latest_until(folder, num_steps)
    if found is None:
        if checkpoint.latest(folder) is not None:
            raise ConfigError(
                f"{stage.name} has no checkpoint within training.num_steps={num_steps}: raise "
                f"it, or begin a run of its own"
            )
        return 0
    copied = aside / "checkpoints" / stage.name / found.folder.name
    _copy(found.folder, copied)
    state: dict[str, Any] = dict(found.state)
    for key, name in _STATES.items():
        if reason := _begins_anew(stage, key, old[key]):
            log.warning("%s.%s %s: it begins anew", stage.name, key, reason)
            state.pop(name, None)
    if state != found.state:
        write_json(copied / "state.json", state)
        checkpoint.write_manifest(copied)
    return found.step


def _begins_anew(stage: StageConfig, key: str, old: Document) -> str:
    """Why the state of a component is not taken over; empty if it is."""
    if old["use"] != stage.uses[key]:
        return "is another component now"
    component = getattr(stage, key)
    fields = {name: value for name, value in old.items() if name != "use"}
    try:
        before = structure(type(component), fields, key)
    except ConfigError:  # of another version, whose state may well be the same
        return ""
    try:
        same = before.initial_state() == component.initial_state()
    except ConfigError:  # a file that it began with is gone, say
        same = False
    return "" if same else "begins with another state now"


def _copy_episodes(stage: str, source: Path, aside: Path) -> None:
    """What the stage played, and what was demonstrated to it."""
    if (source / "rollouts" / stage).exists():
        _copy(source / "rollouts" / stage, aside / "rollouts" / stage)
    demonstrations = Path("demonstrations", f"{stage}.jsonl")
    if (source / demonstrations).exists():
        (aside / "demonstrations").mkdir(exist_ok=True)
        shutil.copy2(source / demonstrations, aside / demonstrations)


def _stage_documents(document: Document) -> dict[str, Document]:
    """The stages of a resolved configuration, by name."""
    if "stages" in document:
        return {stage["name"]: stage for stage in document["stages"]}
    return {document["algorithm"]["use"]: document}


def _copy(source: Path, target: Path) -> None:
    """A folder whose files nobody changes: names for the same content, where the disk can."""

    def link(old: str, new: str) -> None:
        try:
            os.link(old, new)
        except OSError:
            shutil.copy2(old, new)

    shutil.copytree(source, target, copy_function=link)
