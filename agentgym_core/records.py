"""An episode as a JSON line: flat columns, then OpenAI-style messages, then the turns' tokens.

Concatenating `prompt_ids + token_ids` of the turns with one `sequence` number rebuilds what the
engine saw, id by id.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from agentgym_core.diagnosis import diagnose
from agentgym_core.types import (
    Advantages,
    Ending,
    Episode,
    Group,
    Message,
    Task,
    TokenSequence,
    Turn,
)


def group_rows(
    groups: Sequence[Group],
    sequences: Sequence[TokenSequence] = (),
    advantages: Advantages | None = None,
) -> list[dict[str, Any]]:
    """A row an episode, failed ones included, in the order in which training numbers them."""
    credit = _turn_advantages(sequences, advantages)
    rows: list[dict[str, Any]] = []
    number = 0
    for index, group in enumerate(groups):
        for episode in group.episodes:
            rows.append({"group": index, **episode_row(episode, credit.get(number, {}))})
            number += 1
        rows += [{"group": index, **episode_row(episode, {})} for episode in group.failures]
    return rows


def episode_row(episode: Episode, credit: dict[int, list[float]]) -> dict[str, Any]:
    """One episode; `credit` holds the advantages of each turn's sampled tokens."""
    return {
        "item_id": episode.task.id,
        "environment": episode.environment,
        "category": episode.task.category,
        "sample": episode.sample,
        "seed": episode.seed,
        "success": episode.success,
        "success_best": episode.success_best,
        "attempts": episode.num_attempts,
        "retries": list(episode.retries),
        "reward": episode.reward,
        "ending": episode.ending.value,
        "error": episode.error,
        "failed_tries": [ending.value for ending in episode.failed_tries],
        "diagnosis": list(diagnose(episode)),
        "rounds": episode.num_rounds,
        "max_rounds": episode.max_rounds,
        "tokens": episode.num_tokens,
        "seconds": round(episode.seconds, 3),
        "final_ids": list(episode.final_ids),
        "messages": [{"role": m.role, "content": m.text} for m in episode.messages],
        "turns": [_turn_row(turn, credit.get(i)) for i, turn in enumerate(episode.turns)],
    }


def read_groups(rows: Sequence[Mapping[str, Any]]) -> tuple[Group, ...]:
    """The groups of a file of episodes, which give the very sequences that were played.

    Of a task there is its id and category, and of a message its text.

    Raises:
        KeyError, TypeError, ValueError: a row is none that `group_rows` writes.
    """
    members: dict[int, list[Episode]] = {}
    for row in rows:
        members.setdefault(row["group"], []).append(read_episode(row))
    return tuple(
        Group(
            task=episodes[0].task,
            environment=episodes[0].environment,
            episodes=tuple(e for e in episodes if not e.ending.is_failure),
            failures=tuple(e for e in episodes if e.ending.is_failure),
        )
        for _, episodes in sorted(members.items())
    )


def read_episode(row: Mapping[str, Any]) -> Episode:
    """What `episode_row` wrote; raises as `read_groups` does."""
    return Episode(
        task=Task(id=row["item_id"], category=row["category"]),
        environment=row["environment"],
        sample=row["sample"],
        seed=row["seed"],
        max_rounds=row["max_rounds"],
        turns=tuple(_read_turn(turn) for turn in row["turns"]),
        final_ids=tuple(row["final_ids"]),
        messages=tuple(Message(m["role"], m["content"]) for m in row["messages"]),
        ending=Ending(row["ending"]),
        success=row["success"],
        error=row["error"],
        seconds=row["seconds"],
        failed_tries=tuple(Ending(ending) for ending in row["failed_tries"]),
        retries=tuple(row.get("retries", ())),
    )


def _read_turn(row: Mapping[str, Any]) -> Turn:
    """A row has more than the turn, such as advantages, and one of an older run may have less."""
    fields: dict[str, Any] = {f.name: row[f.name] for f in attrs.fields(Turn) if f.name in row}
    for key in ("prompt_ids", "token_ids", "logprobs"):
        fields[key] = tuple(row[key])
    return Turn(**fields)


def _turn_row(turn: Turn, advantages: list[float] | None) -> dict[str, Any]:
    return {
        "sequence": turn.sequence,
        "prompt_ids": list(turn.prompt_ids),
        "token_ids": list(turn.token_ids),
        "logprobs": list(turn.logprobs),
        "trained": turn.trained,
        "advantages": advantages or [],
        "policy_version": turn.policy_version,
        "finish_reason": turn.finish_reason,
        "text": turn.text,
        "action": turn.action,
        "observation": turn.observation,
        "rounds": turn.rounds,
        "attempt": turn.attempt,
        "reward": turn.reward,
        "rewards": dict(turn.rewards),
        "format_error": turn.format_error,
    }


def _turn_advantages(
    sequences: Sequence[TokenSequence], advantages: Advantages | None
) -> dict[int, dict[int, list[float]]]:
    """By episode number and turn."""
    credit: dict[int, dict[int, list[float]]] = {}
    if advantages is None:
        return credit
    for sequence, values in zip(sequences, advantages.values, strict=True):
        turns = credit.setdefault(sequence.episode, {})
        for turn in sorted({int(t) for t in sequence.turns if t >= 0}):
            turns[turn] = [float(value) for value in values[sequence.turns == turn]]
    return credit
