"""Episodes to imitate, as JSON lines with OpenAI-style messages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_core.errors import ComponentError
from agentgym_core.types import Episode, Group, Message


def expert_episodes(groups: Sequence[Group]) -> list[Episode]:
    """The episodes that an expert played, in order.

    Raises:
        ComponentError: one failed; the message names the task and the reason.
    """
    for episode in (episode for group in groups for episode in group.failures):
        raise ComponentError(
            f"{episode.environment} cannot demonstrate {episode.task.id}: {episode.error}. Mend "
            "that, and give the same command again"
        )
    return [episode for group in groups for episode in group.episodes]


def demonstration_row(episode: Episode) -> dict[str, Any]:
    """An episode to imitate; assistant messages that are not to be learned carry `"loss": false`.

    Example: {"item_id": "textcraft_12", "environment": "textcraft", "success": true, "rounds": 3,
    "messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
    """
    messages = list(episode.messages)
    while messages and messages[-1].role != "assistant":
        messages.pop()  # nobody answered it
    return {
        "item_id": episode.task.id,
        "environment": episode.environment,
        "category": episode.task.category,
        "success": episode.success,
        "rounds": episode.num_rounds,
        "messages": [_message_row(message) for message in messages],
    }


def read_conversations(path: Path) -> list[tuple[Message, ...]]:
    """The conversations of a JSONL file whose rows hold `messages`.

    Raises:
        ValueError: a line is not such a row, or the file has none; the message says where.
    """
    conversations: list[tuple[Message, ...]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row: Mapping[str, Any] = json.loads(line)
            messages = tuple(
                Message(m["role"], m["content"], loss=m.get("loss", True)) for m in row["messages"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}:{number}: expected a JSON object with `messages`, a list of "
                f'{{"role": …, "content": …}}; {type(error).__name__}: {error}'
            ) from error
        conversations.append(messages)
    if not any(m.role == "assistant" and m.loss for messages in conversations for m in messages):
        raise ValueError(f"{path} holds no assistant message to learn from")
    return conversations


def _message_row(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.text}
    return row if message.loss else {**row, "loss": False}
