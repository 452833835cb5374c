"""Conversations as token sequences to imitate, rendered as the policy will meet them."""

from collections.abc import Sequence

import numpy as np

from agentgym_core.renderer import Prompt, Renderer
from agentgym_core.settings import Limits
from agentgym_core.types import Message, TokenSequence


def to_supervised(
    renderer: Renderer, messages: Sequence[Message], number: int, limits: Limits
) -> list[TokenSequence]:
    """Render a conversation turn by turn; a template that rewrites history gives several contexts.

    The mask is True on the tokens of assistant messages with `loss`, their end of turn included.
    Messages after the last assistant message are left out: nothing is learned there.

    Args:
        renderer: of the policy's tokenizer.
        messages: the conversation.
        number: stands as `episode` and `group` of the sequences.
        limits: as in play. The turn at which an episode would run out of tokens, and those after
            it, are left out, and not even rendered: there may be thousands.
    """
    contexts: list[_Context] = []
    pending: list[Message] = []
    prompt: Prompt | None = None
    reply_ids: tuple[int, ...] = ()
    turn = room = 0
    for message in messages:
        if message.role != "assistant":
            pending.append(message)
            continue
        if prompt is None:
            prompt, ids = renderer.open(pending)
            extends = False
        else:
            prompt, ids, extends = renderer.extend(prompt, reply_ids, pending)
        reply_ids = renderer.reply_ids(message)
        if turn == 0:
            fits = len(ids) <= limits.max_prompt_tokens
            room = len(ids) + limits.max_response_tokens if fits else 0
        context = contexts[-1] if extends else _Context()
        if len(context.token_ids) + len(ids) + len(reply_ids) > room:
            break
        context.add(ids, reply_ids, loss=message.loss, turn=turn)
        if not extends:
            contexts.append(context)
        pending.clear()
        turn += 1
    return [context.sequence(number) for context in contexts]


class _Context:
    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.mask: list[bool] = []
        self.turns: list[int] = []

    def add(self, ids: Sequence[int], reply: Sequence[int], *, loss: bool, turn: int) -> None:
        """Another turn."""
        self.token_ids += [*ids, *reply]
        self.mask += [False] * len(ids) + [loss] * len(reply)
        self.turns += [-1] * len(ids) + [turn] * len(reply)

    def sequence(self, number: int) -> TokenSequence:
        zeros = np.zeros(len(self.token_ids))
        return TokenSequence(
            token_ids=np.array(self.token_ids, np.int64),
            mask=np.array(self.mask, np.bool_),
            logprobs=zeros,
            rewards=zeros,
            turns=np.array(self.turns, np.int64),
            versions=np.full(len(self.token_ids), -1, np.int64),
            episode=number,
            group=number,
        )
