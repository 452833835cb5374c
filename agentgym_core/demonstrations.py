"""Episodes to imitate, as JSON lines with OpenAI-style messages."""

from collections.abc import Sequence
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

    Example: {"item_id": "textcraft_12", "environment": "textcraft", "success": true,
    "reward": 1.0, "rounds": 3, "messages": [{"role": "user", "content": "…"},
    {"role": "assistant", "content": "…"}]}
    """
    messages = list(episode.messages)
    while messages and messages[-1].role != "assistant":
        messages.pop()  # nobody answered it
    return {
        "item_id": episode.task.id,
        "environment": episode.environment,
        "category": episode.task.category,
        "success": episode.success,
        "reward": episode.reward,
        "rounds": episode.num_rounds,
        "messages": [_message_row(message) for message in messages],
    }


def _message_row(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.text}
    return row if message.loss else {**row, "loss": False}
