"""What earlier stages of the same run have played, for stages that learn from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym_core.conversations import Conversation, to_conversation
from agentgym_core.files import read_json_lines
from agentgym_core.ranks import on_first
from agentgym_core.records import read_groups
from agentgym_core.types import Group


def explored_groups(run: Any, stages: Sequence[str]) -> tuple[Group, ...]:
    """The groups that stages have played in training, step by step.

    Which steps there are, metrics.jsonl says, so that a kill, which may leave more files or halves
    of them, changes nothing. Every rank is given what the first one reads.

    Args:
        run: an `agentgym_core.run.Run`.
        stages: names of earlier stages. That they are such, the configuration has checked.

    Raises:
        ValueError: a stage has played nothing, or a file of it is gone or damaged; names it.
    """
    return on_first(run.ranks, lambda: _read_groups(run, stages))


def demonstrated(run: Any, stages: Sequence[str]) -> list[Conversation]:
    """The demonstrations that stages have had played, as `demonstrations/<stage>.jsonl` keeps them.

    Raises:
        ValueError: a stage had none played; names it.
    """
    return on_first(run.ranks, lambda: _read_demonstrations(run.folder, stages))


def _read_groups(run: Any, stages: Sequence[str]) -> tuple[Group, ...]:
    groups: list[Group] = []
    for stage in stages:
        steps = [row["step"] for row in run.log.find(stage=stage, phase="train")]
        if not steps or not [*(run.folder / "rollouts" / stage).glob("step-*.jsonl")]:
            raise ValueError(
                f"stage {stage!r} has played no episodes to learn from: name one that does, such "
                "as one with `algorithm: explore`"
            )
        groups += [group for step in steps for group in _groups_of_step(run.folder, stage, step)]
    return tuple(groups)


def _groups_of_step(folder: Path, stage: str, step: int) -> tuple[Group, ...]:
    path = folder / "rollouts" / stage / f"step-{step:06d}.jsonl"
    rows = read_json_lines(path)
    if not rows:
        raise ValueError(
            f"{path} is gone, or holds no episodes: bring it back from a copy, or remove "
            f"{folder / 'policies' / stage} and {folder / 'checkpoints' / stage} to play that "
            "stage again"
        )
    try:
        return read_groups(rows)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no episodes: {type(error).__name__}: {error}") from error


def _read_demonstrations(folder: Path, stages: Sequence[str]) -> list[Conversation]:
    conversations: list[Conversation] = []
    for stage in stages:
        path = folder / "demonstrations" / f"{stage}.jsonl"
        rows = read_json_lines(path)
        if not rows:
            raise ValueError(
                f"stage {stage!r} had no demonstrations played: there is no {path}. Name a stage "
                "with `num_demonstrations`, or give its file in `data`"
            )
        read = [to_conversation(row, f"{path}:{n}") for n, row in enumerate(rows, start=1)]
        conversations += [conversation for conversation in read if conversation is not None]
    return conversations


def refuse_twice(**names: Sequence[str]) -> None:
    """Refuse lists, by their keys, that name a stage twice, whose episodes would count double.

    Raises:
        ValueError: one does; the message names it.
    """
    for key, listed in names.items():
        for name in listed:
            if listed.count(name) > 1:
                raise ValueError(f"{key} names stage {name!r} twice")
