"""Conversations to learn from, in every shape that files have. A row says itself what it is.

    messages         OpenAI's rows, and demonstrations. An assistant message with `"loss": false`,
                     or OpenAI's `"weight": 0`, is read and not learned.
    messages, turns  Episodes of a run's `rollouts/`. Turns that were not trained are not learned;
                     an episode that failed for a reason other than the policy is passed over.
    conversations    of `from` and `value`: AgentTraj-L. Replies of `gpt` with `"loss": true` are
                     learned, and no others: neither `false` nor `null`.
    conversations    of `role` and `content`: AgentGym-RL's rollout logs. The first reply, if it
                     begins with "OK", is one that no policy gave, and is not learned.

A row may carry `success` and `reward`, to be filtered by.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

import attrs

from agentgym_core.data_files import find_files, read_rows
from agentgym_core.types import Ending, Message
from agentgym_core.types.worlds import Role
from agentgym_core.wording import shown

_EXPECTED = (
    'expected `messages`, a list of {"role": …, "content": …}, or `conversations`, a list of '
    '{"from": …, "value": …} or of {"role": …, "content": …}'
)
_SPEAKERS: Mapping[str, Role] = {"human": "user", "gpt": "assistant", "system": "system"}
_ACKNOWLEDGES = re.compile(r"\s*ok\b", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Conversation:
    """One row of a file, or an episode that was played to be imitated."""

    messages: tuple[Message, ...]
    success: bool | None = None
    """The environment's verdict; None where the row has none."""
    reward: float | None = None
    place: str = ""
    """Where it stands, such as `demos.jsonl:12`, or the task that was played, for errors."""

    @property
    def teaches(self) -> bool:
        """Whether it holds a message to learn."""
        return any(message.role == "assistant" and message.loss for message in self.messages)


def read_conversations(data: str | Sequence[str]) -> list[Conversation]:
    """The conversations of files, in order.

    Args:
        data: see `agentgym_core.data_files.find_files`.

    Raises:
        ValueError: a file is missing, a row is of no known shape, or none has a message to learn;
            the message says where.
    """
    rows = [row for path in find_files(data) for row in read_rows(path)]
    found = [to_conversation(row, place) for place, row in rows]
    conversations = [conversation for conversation in found if conversation is not None]
    if not any(conversation.teaches for conversation in conversations):
        named = data if isinstance(data, str) else ", ".join(data)
        raise ValueError(
            f'{named} holds no assistant message to learn from. Those with `"loss": false` are '
            'not learned, nor those of AgentTraj-L\'s `gpt` without `"loss": true`'
        )
    return conversations


def to_conversation(row: Any, place: str) -> Conversation | None:
    """Read one row; None if it is an episode that failed.

    Raises:
        ValueError: it is of no known shape; begins with the place.
    """
    try:
        if not isinstance(row, Mapping):
            raise TypeError(f"got {shown(row)}")
        fields = cast("Mapping[str, Any]", row)
        if "messages" not in fields and "conversations" not in fields:
            pair = ": pairs are for `dpo`" if "chosen" in fields else ""
            raise ValueError(f"it has the keys {', '.join(map(str, fields)) or 'none'}{pair}")
        if "ending" in fields and Ending(fields["ending"]).is_failure:
            return None
        messages = _recorded(fields) if "turns" in fields else _messages(fields)
        success, reward = _verdict(fields)
    except (ValueError, KeyError, TypeError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{place}: {_EXPECTED}; {kind}{error}") from error
    return Conversation(messages=messages, success=success, reward=reward, place=place)


def to_messages(rows: Any) -> tuple[Message, ...]:
    """OpenAI-style messages, whose content is text or parts of text.

    Raises:
        ValueError, KeyError, TypeError: one is none.
    """
    return tuple(_message(row["role"], row["content"], loss=_loss(row)) for row in _listed(rows))


def selected(
    conversations: Sequence[Conversation], *, only_success: bool, min_reward: float | None
) -> list[Conversation]:
    """Those that succeeded, and those of that reward at least. A row without a verdict stays.

    Raises:
        ValueError: no row has what is asked for, or none is left.
    """
    kept = list(conversations)
    if only_success:
        if all(conversation.success is None for conversation in kept):
            raise ValueError("only_success: no row has `success`. Leave the key out")
        kept = [conversation for conversation in kept if conversation.success is not False]
    if min_reward is not None:
        if all(conversation.reward is None for conversation in kept):
            raise ValueError("min_reward: no row has a `reward`. Leave the key out")
        kept = [found for found in kept if found.reward is None or found.reward >= min_reward]
    if not kept:
        raise ValueError(
            f"none of {len(conversations)} conversations passes `only_success` and `min_reward`: "
            "ask for less, or give other data"
        )
    return kept


def _messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    if "messages" in row:
        return to_messages(row["messages"])
    turns = _listed(row["conversations"])
    if any("from" in turn for turn in turns):
        return tuple(_spoken(turn) for turn in turns)
    messages = list(to_messages(turns))
    first = next((i for i, message in enumerate(messages) if message.role == "assistant"), None)
    if first is not None and _ACKNOWLEDGES.match(messages[first].text):
        messages[first] = attrs.evolve(messages[first], loss=False)
    return tuple(messages)


def _recorded(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """Of our own rollouts, whose messages do not say what is trained, but whose turns do."""
    messages = to_messages(row["messages"])
    trained = [bool(turn["trained"]) for turn in _listed(row["turns"])]
    replies = [i for i, message in enumerate(messages) if message.role == "assistant"]
    if len(replies) != len(trained):
        return messages
    losses = dict(zip(replies, trained, strict=True))
    return tuple(attrs.evolve(m, loss=losses.get(i, m.loss)) for i, m in enumerate(messages))


def _spoken(turn: Mapping[str, Any]) -> Message:
    """A turn of AgentTraj-L."""
    speaker = turn["from"]
    if speaker not in _SPEAKERS:
        raise ValueError(f"`from` is {shown(speaker)}, expected human or gpt")
    return _message(_SPEAKERS[speaker], turn["value"], loss=turn.get("loss") is True)


def _message(role: Any, content: Any, *, loss: bool) -> Message:
    if role not in get_args(Role):
        raise ValueError(f"`role` is {shown(role)}, expected one of {', '.join(get_args(Role))}")
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        if any(part["type"] != "text" or not isinstance(part["text"], str) for part in parts):
            raise ValueError("`content` has a part that is no text, which is all that is learned")
        return Message(role, parts, loss=loss)
    if not isinstance(content, str):
        raise ValueError(f"`content` is {shown(content)}, expected text or parts of text")
    return Message(role, content, loss=loss)


def _loss(row: Mapping[str, Any]) -> bool:
    key: Literal["loss", "weight"] = "loss" if "loss" in row else "weight"
    value = row.get(key, True)
    if value not in (0, 1):
        raise ValueError(f"`{key}` is {shown(value)}, expected true or false")
    return bool(value)


def _verdict(row: Mapping[str, Any]) -> tuple[bool | None, float | None]:
    success, reward = row.get("success"), row.get("reward")
    if success is not None and not isinstance(success, bool):
        raise ValueError(f"`success` is {shown(success)}, expected true or false")
    if reward is None:
        return success, None
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not _is_finite(reward):
        raise ValueError(f"`reward` is {shown(reward)}, expected a number")
    return success, float(reward)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond every float
        return False


def _listed(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise TypeError(f"{shown(value)} is no list")
    return cast("list[Mapping[str, Any]]", value)
