"""Messages to token ids, through the model's own chat template. The only place that does it.

Sampled ids are the truth: they are never decoded and encoded again. After a reply, the template
renders the whole conversation as text; if that text goes on where the engine's context stands, its
tail (end of turn, new messages, generation prompt) is encoded and appended to the sampled ids. If
it does not, because the template rewrites history (as Qwen3's does when it drops `<think>`), the
conversation continues in a fresh context, encoded whole.
"""

import re
from collections.abc import Sequence

import attrs

from agentgym_core.errors import TemplateError
from agentgym_core.protocols import Tokenizer
from agentgym_core.types import Message

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


@attrs.frozen(kw_only=True)
class Prompt:
    """A rendered conversation that waits for a reply."""

    messages: tuple[Message, ...]
    text: str


@attrs.frozen(kw_only=True)
class Traits:
    """What a chat template can do, found out by trying."""

    system_role: bool
    """False: system messages are folded into the first user message."""
    consecutive_users: bool
    """False: neighbouring user messages are joined by an empty line."""
    opens: str
    """What the generation prompt already says for the policy, such as an opening `<think>`."""
    end_of_turn: str
    """What follows an assistant message."""
    extends: bool
    """A plain reply stays as it is when the conversation goes on."""
    extends_thinking: bool
    """A reply with `<think>…</think>` does, too."""


class Renderer:
    """One tokenizer's template, with its traits.

    Raises:
        TemplateError: the tokenizer has no chat template, or one that drops messages.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.chat_template:
            raise TemplateError(
                "the tokenizer has no chat template. Give one in `model.chat_template` "
                "(the path of a Jinja file), or choose an instruction-tuned model"
            )
        self.tokenizer = tokenizer
        self._controls = _controls(tokenizer)
        self.traits = Traits(
            system_role=True,
            consecutive_users=True,
            opens="",
            end_of_turn="",
            extends=True,
            extends_thinking=True,
        )
        self.traits = self._find_traits()
        self.end_id, self.stop_ids = self._find_stop_ids()

    def open(self, messages: Sequence[Message]) -> tuple[Prompt, tuple[int, ...]]:
        """Render a conversation; returns it with all its ids."""
        prompt = Prompt(messages=tuple(messages), text=self.render(messages))
        return prompt, self.encode(prompt.text)

    def extend(
        self, prompt: Prompt, reply_ids: Sequence[int], messages: Sequence[Message]
    ) -> tuple[Prompt, tuple[int, ...], bool]:
        """Render the conversation as it goes on after a sampled reply.

        Returns:
            The new prompt; ids; and whether they extend the old context. If so, `prompt ids +
            reply_ids + ids` is the new context, else `ids` are, alone.
        """
        reply = self.reply_message(reply_ids)
        history = (*prompt.messages, reply, *messages)
        extended = Prompt(messages=history, text=self.render(history))
        tail = self._tail(prompt, reply, extended.text)
        if tail is None:
            return extended, self.encode(extended.text), False
        return extended, self._encode_tail(tail, reply_ids), True

    def reply_message(self, reply_ids: Sequence[int]) -> Message:
        """The sampled ids as the message that the template will see in the history."""
        return Message("assistant", self.traits.opens + self.reply_text(reply_ids))

    def reply_text(self, reply_ids: Sequence[int]) -> str:
        """The sampled ids as text, without the end of turn."""
        ids = reply_ids[:-1] if reply_ids and reply_ids[-1] in self.stop_ids else reply_ids
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def reply_ids(self, message: Message) -> tuple[int, ...]:
        """An assistant message as a policy would have sampled it, end of turn included."""
        return (*self.encode(message.text.removeprefix(self.traits.opens)), self.end_id)

    def split_thinking(self, text: str) -> tuple[str, str]:
        """Split a reply into (thinking, answer). Thinking that was never closed has no answer."""
        opened = (self.traits.opens + text).lstrip()
        if not opened.startswith(THINK_OPEN):
            return "", text
        thinking, _, answer = opened.removeprefix(THINK_OPEN).partition(THINK_CLOSE)
        return thinking.strip(), answer.lstrip()

    def encode(self, text: str) -> tuple[int, ...]:
        """Text to ids. The template's own text brings every special token there is."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def render(self, messages: Sequence[Message], generation_prompt: bool = True) -> str:
        """Render as text, after folding what the template has no form for.

        Raises:
            TemplateError: the template refuses the conversation.
        """
        conversation = [
            {
                "role": m.role,
                "content": _text(m) if m.role == "assistant" else self._plain(_text(m)),
            }
            for m in self._fold(messages)
        ]
        try:
            return self.tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=generation_prompt
            )
        except Exception as error:  # Jinja's errors, and whatever a template raises
            roles = ", ".join(m["role"] for m in conversation)
            raise TemplateError(f"the chat template refuses the roles {roles}: {error}") from error

    def _plain(self, text: str) -> str:
        """What the world says, without control tokens, by which it could forge a turn.

        One becomes plain text by a space after its first character: `< |im_end|>`.
        """
        return self._controls.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _fold(self, messages: Sequence[Message]) -> list[Message]:
        join = not (self.traits.system_role and self.traits.consecutive_users)
        folded: list[Message] = []
        for message in messages:
            if message.role == "system" and not self.traits.system_role:
                message = Message("user", message.content)
            if join and folded and message.role == folded[-1].role == "user":
                folded[-1] = Message("user", f"{_text(folded[-1])}\n\n{_text(message)}")
            else:
                folded.append(message)
        return folded

    def _tail(self, prompt: Prompt, reply: Message, text: str) -> str | None:
        """What follows the reply in `text`; None if the context was rewritten up to there."""
        if not text.startswith(prompt.text):
            return None
        rest = text[len(prompt.text) :]
        said = reply.text.removeprefix(self.traits.opens)
        if rest.startswith(said):
            return rest[len(said) :]
        # Many templates trim a message. That moves white space only: the sampled ids stay.
        rest, said = rest.lstrip(), said.strip()
        return rest[len(said) :] if rest.startswith(said) else None

    def _encode_tail(self, tail: str, reply_ids: Sequence[int]) -> tuple[int, ...]:
        ids = self.encode(tail)
        if reply_ids and ids and reply_ids[-1] == ids[0] and ids[0] in self.stop_ids:
            return ids[1:]  # the policy ended its turn itself
        return ids

    def _find_traits(self) -> Traits:
        user, reply = Message("user", "Hello."), Message("assistant", "Good.")
        opening = self.render([user])
        history = self.render([user], generation_prompt=False)
        answered = self.render([user, reply], generation_prompt=False)
        if not (opening.startswith(history) and answered.startswith(history)):
            raise TemplateError("the chat template changes a user message once it is answered")
        header, found, end_of_turn = answered.removeprefix(history).partition("Good.")
        if not found:
            raise TemplateError("the chat template drops the assistant's messages")
        generation_prompt = opening.removeprefix(history)
        opens = ""
        if generation_prompt.startswith(header):
            opens = generation_prompt.removeprefix(header)
        self.traits = Traits(
            system_role=self._keeps([Message("system", "Rules."), user]),
            consecutive_users=self._keeps([user, Message("user", "Again.")]),
            opens=opens,
            end_of_turn=end_of_turn,
            extends=True,
            extends_thinking=True,
        )
        thinking = f"{THINK_OPEN}\nHm.\n{THINK_CLOSE}\n\nGood.".removeprefix(opens)
        plain = thinking if opens.startswith(THINK_OPEN) else "Good."
        return attrs.evolve(
            self.traits,
            extends=self._extends(plain),
            extends_thinking=self._extends(thinking),
        )

    def _keeps(self, messages: Sequence[Message]) -> bool:
        try:
            text = self.render(messages)
        except TemplateError:
            return False
        return all(message.text in text for message in messages)

    def _extends(self, said: str) -> bool:
        user, more = Message("user", "Hello."), Message("user", "More.")
        reply = Message("assistant", self.traits.opens + said)
        prompt = Prompt(messages=(user,), text=self.render([user]))
        return self._tail(prompt, reply, self.render([user, reply, more])) is not None

    def _find_stop_ids(self) -> tuple[int, frozenset[int]]:
        """The id that ends a reply, and all that may: the template's own and the tokenizer's."""
        ends = self.encode(self.traits.end_of_turn.strip())
        end_of_sequence = self.tokenizer.eos_token_id
        stop_ids = [*ends] if len(ends) == 1 else []
        if end_of_sequence is not None:
            stop_ids.append(end_of_sequence)
        if not stop_ids:
            raise TemplateError("the tokenizer has no end-of-sequence token: nothing ends a reply")
        return stop_ids[0], frozenset(stop_ids)


def _controls(tokenizer: Tokenizer) -> re.Pattern[str]:
    """The control tokens that a text could spell, the longest first."""
    added = tokenizer.added_tokens_decoder.values()
    names = {str(token) for token in added if token.special and len(str(token)) > 1}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _text(message: Message) -> str:
    for part in message.content:
        if part["type"] != "text":
            raise TemplateError(
                f"a {message.role} message holds a part of type {part['type']!r}; "
                "only text can be rendered"
            )
    return message.text
