"""What the policy reads in an episode, and what becomes of it when the context is full."""

from collections.abc import Sequence
from math import floor

import attrs

from agentgym_core.agents.context import Context, policy_of
from agentgym_core.contract import instructions_of
from agentgym_core.protocols import Environment, Handler, MeteredSession
from agentgym_core.types import Message, Observation, Reply

_REPLY = Message("assistant", "")
"""Stands for a reply that is still to come, where room is counted; its tokens are counted apart."""


def instructions(environment: Environment, *, thought: bool) -> tuple[Message, ...]:
    """What the world is and how to reply, as a system message, if there is anything to say."""
    system = instructions_of(environment, thought=thought)
    return (Message("system", system),) if system else ()


def opening(
    environment: Environment, observation: Observation, *, thought: bool
) -> tuple[Message, ...]:
    """The first messages: what the world is and how to reply, then what there is to see."""
    return instructions(environment, thought=thought) + observation.messages


async def converse(
    session: MeteredSession, handler: Handler, *, thought: bool, context: Context = "stop"
) -> None:
    """Play an episode, one action a reply, until it ends."""
    conversation = Conversation(session, handler, context)
    first = await session.reset()
    conversation.open(instructions(session.environment, thought=thought), first)
    while not session.ended:
        reply = await conversation.reply()
        await conversation.observe(await session.act(reply))


@attrs.define
class _Entry:
    """A step of the conversation in the present context, after its opening."""

    messages: tuple[Message, ...]
    is_observation: bool = False
    is_dropped: bool = False


class Conversation:
    """An episode's messages under a context policy, for the agent that plays it.

    A fresh context repeats old replies without their thinking. They are prompt there: each reply is
    trained once, in the context in which it was sampled.
    """

    def __init__(self, session: MeteredSession, handler: Handler, context: Context) -> None:
        self.notes: tuple[Message, ...] = ()
        """What a summary must not lose, such as a plan: a fresh context holds it word for word."""
        self._session = session
        self._handler = handler
        self._policy = policy_of(context)
        self._head: tuple[Message, ...] = ()
        self._entries: list[_Entry] = []
        self._has_replied = False  # in this context

    def open(self, known: Sequence[Message], observation: Observation) -> None:
        """Begin with what there is to know, and the first observation."""
        self._handler.add(known)
        self._handler.add(observation)
        self._forget((*known, *observation.messages))

    def restart(self, known: Sequence[Message], observation: Observation) -> None:
        """The same in a fresh context: another attempt."""
        self._handler.begin(known)
        self._handler.add(observation)
        self._forget((*known, *observation.messages))

    async def reply(self) -> Reply:
        """Let the policy speak: see `protocols.Handler.reply`."""
        reply = await self._handler.reply()
        self._remember(reply)
        return reply

    async def observe(self, observation: Observation) -> None:
        """Show what the world answered, after making room for it and the next reply."""
        await self._make_room(observation.messages)
        self._handler.add(observation)
        self._entries.append(_Entry(observation.messages, is_observation=True))

    async def say(self, request: str, then: str = "") -> Reply | None:
        """Ask for words, not for an action; `then` follows them if there are any.

        See `protocols.Handler.say`.
        """
        asked, after = Message("user", request), (Message("user", then),) if then else ()
        await self._make_room((asked, *((_REPLY, *after) if then else ())), is_request=True)
        reply = await self._handler.say(request)
        if reply is None:
            return None
        self._entries.append(_Entry((asked,)))
        self._remember(reply)
        if after:
            self._handler.add(after)
            self._entries.append(_Entry(after))
        return reply

    def _remember(self, reply: Reply) -> None:
        self._entries.append(_Entry((Message("assistant", reply.text),)))
        self._has_replied = True

    def _forget(self, head: tuple[Message, ...]) -> None:
        self._head, self._entries, self._has_replied = head, [], False

    async def _make_room(self, messages: Sequence[Message], *, is_request: bool = False) -> None:
        """See that the replies after these messages fit, as far as the policy says how.

        Nothing is done before the first reply in a context, so that this comes to an end.
        """
        if self._policy.when_full == "stop" or self._session.ended or not self._has_replied:
            return
        # With `is_request` the latest observation has not been acted on yet, and must stay.
        if self._policy.when_full == "drop":
            self._drop(messages, is_request)
        else:
            await self._summarise(messages, is_request)

    def _fits(self, messages: Sequence[Message]) -> bool:
        """Whether these can be read, with the replies among them and one after them."""
        replies = 1 + sum(message is _REPLY for message in messages)
        return self._handler.room(messages) >= replies * self._handler.longest_reply

    def _drop(self, messages: Sequence[Message], is_request: bool) -> None:
        if self._fits(messages):
            return
        note = self._policy.note
        seen = [entry for entry in self._entries if entry.is_observation]
        old = [
            entry
            for entry in (seen[:-1] if is_request else seen)
            if not entry.is_dropped and sum(len(m.text) for m in entry.messages) > len(note)
        ]
        stays = min(floor(self._policy.keep * len(old)), len(old) - 1)
        for place, entry in enumerate(old):
            entry.messages, entry.is_dropped = (Message("user", note),), True
            if len(old) - place - 1 <= stays:
                self._handler.begin(self._context())
                if self._fits(messages):
                    return

    async def _summarise(self, messages: Sequence[Message], is_request: bool) -> None:
        asked = Message("user", self._policy.request)
        if self._fits((*messages, _REPLY, asked)) or not self._fits((asked,)):
            return
        summary = await self._handler.say(asked.text)
        if summary is None:
            return
        told = _Entry((Message("user", f"{self._policy.heading}\n{summary.text}"),))
        seen = [entry for entry in self._entries if entry.is_observation]
        self._entries = [told, *(seen[-1:] if is_request else [])]
        self._has_replied = False
        self._handler.begin(self._context(self.notes))

    def _context(self, notes: Sequence[Message] = ()) -> list[Message]:
        """All that a fresh context holds."""
        entries = (message for entry in self._entries for message in entry.messages)
        return [*self._head, *notes, *entries]
