"""Messages, tasks, and what a world answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

Role = Literal["system", "user", "assistant", "tool"]
Part = Mapping[str, Any]
"""OpenAI-style content part, such as {"type": "text", "text": "You open the door."}"""


def to_parts(content: "str | Sequence[Part]") -> tuple[Part, ...]:
    """A text becomes one text part."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    return tuple(content)


@attrs.frozen
class Message:
    """One message of a conversation.

    Example: Message("user", "You see a locked door.")
    """

    role: Role
    content: tuple[Part, ...] = attrs.field(converter=to_parts)
    loss: bool = attrs.field(default=True, kw_only=True)
    """Whether imitation learns this message. Read for assistant messages only."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part["text"] for part in self.content if part["type"] == "text")


def to_messages(value: "str | Message | Sequence[Message]") -> tuple[Message, ...]:
    """A text becomes one user message; an empty text becomes none."""
    if isinstance(value, str):
        return (Message("user", value),) if value else ()
    if isinstance(value, Message):
        return (value,)
    return tuple(value)


@attrs.frozen(kw_only=True)
class Task:
    """One task of an environment.

    Example: Task(id="textcraft_12", category="depth-2", data={"goal": "oak_planks"})
    """

    id: str
    """Unique and stable in its environment: `<environment>_<integer>` where upstream has one."""
    category: str = ""
    """Evaluation reports success for each category."""
    data: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """What `Session.reset` needs. JSON values only."""


@attrs.frozen(kw_only=True)
class Observation:
    """What the world answers to a reset or a step.

    Example: Observation(messages="Got 2 oak log", reward=0.0)
    """

    messages: tuple[Message, ...] = attrs.field(converter=to_messages)
    reward: float = 0.0
    rewards: Mapping[str, float] = attrs.field(factory=dict[str, float])
    """Named parts of the reward, for metrics. They need not add up to it."""
    terminated: bool = False
    """The world reached an end of its own: nothing would follow."""
    truncated: bool = False
    """The world stopped at its own limit: something would have followed."""
    success: bool = False
    """The environment's verdict so far, apart from the reward."""
    info: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """JSON values for the record. The policy never sees them."""

    @property
    def text(self) -> str:
        """The messages' texts, joined by line breaks."""
        return "\n".join(message.text for message in self.messages)
