"""RolloutHandler: the token-exact record of one episode; and the policy that a model is."""

from collections.abc import Sequence
from typing import Protocol

import attrs

from agentgym_core.contract import is_fault
from agentgym_core.errors import EngineFailure, EpisodeEnded
from agentgym_core.protocols import Handler, Said, Sampler
from agentgym_core.renderer import Prompt, Renderer
from agentgym_core.seeds import derive_seed
from agentgym_core.session import EpisodeSession
from agentgym_core.settings import Limits
from agentgym_core.types import (
    Completion,
    Ending,
    Message,
    Observation,
    Reply,
    Request,
    Sampling,
    to_messages,
)
from agentgym_core.wording import origin


@attrs.frozen(kw_only=True)
class TurnTokens:
    """The token side of one `types.Turn`; an expert's completions have no tokens."""

    sequence: int
    prompt_ids: tuple[int, ...]
    completion: Completion
    text: str
    attempt: int = 1
    """See `types.Turn.attempt`."""


def said(messages: Said) -> tuple[Message, ...]:
    """What a handler is given, as messages."""
    return messages.messages if isinstance(messages, Observation) else to_messages(messages)


class RecordingHandler(Handler, Protocol):
    """A handler as `play_episode` sees it, after the agent is done with it."""

    messages: list[Message]
    turns: list[TurnTokens]

    def final_ids(self) -> tuple[int, ...]:
        """See `types.Episode.final_ids`."""
        ...


class Policy(Protocol):
    """Who replies in an episode: a language model, or an expert."""

    def begin(
        self, session: EpisodeSession, *, sampling: Sampling, key: str, seed: int
    ) -> RecordingHandler:
        """A handler for one episode."""
        ...

    def release(self, key: str) -> None:
        """The episode of that key is over."""
        ...


@attrs.frozen(kw_only=True)
class ModelPolicy(Policy):
    """A language model behind an engine."""

    renderer: Renderer
    sampler: Sampler
    limits: Limits

    def begin(
        self, session: EpisodeSession, *, sampling: Sampling, key: str, seed: int
    ) -> "RolloutHandler":
        """A token-exact record."""
        return RolloutHandler(
            renderer=self.renderer,
            sampler=self.sampler,
            session=session,
            limits=self.limits,
            sampling=sampling,
            key=key,
            seed=seed,
        )

    def release(self, key: str) -> None:
        """The engine may forget what it computed."""
        self.sampler.release(key)


class RolloutHandler:
    """`protocols.Handler` over an engine: every id that it sampled, as it sampled it.

    Args:
        key: tells the engine which requests belong together.
        seed: each turn's sampling seed is derived from it.
    """

    def __init__(
        self,
        *,
        renderer: Renderer,
        sampler: Sampler,
        session: EpisodeSession,
        limits: Limits,
        sampling: Sampling,
        key: str,
        seed: int,
    ) -> None:
        self.messages: list[Message] = []
        self.turns: list[TurnTokens] = []
        self._renderer = renderer
        self._sampler = sampler
        self._session = session
        self._limits = limits
        self._sampling = sampling
        self._key = key
        self._seed = seed
        self._pending: list[Message] = []
        self._begins = False  # a fresh context, in which `_pending` is all there is
        self._prompt: Prompt | None = None
        self._context: tuple[int, ...] = ()
        self._first_prompt_tokens = 0
        self._sequence = 0

    @property
    def longest_reply(self) -> int:
        """See `protocols.Handler`."""
        return self._limits.max_tokens

    def add(self, messages: Said) -> None:
        """Append messages that the policy will read before its next reply."""
        added = said(messages)
        self._pending.extend(added)
        self.messages.extend(added)

    def begin(self, messages: Said) -> None:
        """Leave the context: see `protocols.Handler`. The next turn starts a token sequence."""
        self._pending = list(said(messages))
        self._begins = True

    def room(self, messages: Said = ()) -> int:
        """See `protocols.Handler`."""
        _, ids, extends = self._render(said(messages))
        return self._room(len(self._context) * extends + len(ids))

    async def say(self, request: str) -> Reply:
        """Ask for words: the reply to the request."""
        self.add(request)
        return await self.reply()

    async def reply(self) -> Reply:
        """Let the policy speak.

        Raises:
            EpisodeEnded: the episode is over, or ends here because the prompt or the reply does
                not fit the limits (OUT_OF_TOKENS). The engine is not asked what cannot fit.
            EngineFailure: the engine raised, or returned something malformed.
        """
        if self._session.ended:
            raise EpisodeEnded("the episode is over: check `session.ended` before asking")
        prompt, ids, extends = self._render()
        context = self._context + ids if extends else ids
        room = self._room(len(context))
        if room <= 0:
            self._run_out()
        completion = await self._complete(context, min(room, self._limits.max_tokens))
        self._record(prompt, ids, context, completion, extends)
        if completion.finish_reason == "length" and room <= self._limits.max_tokens:
            self._run_out()  # the episode's budget cut it, not the bound of a single reply
        thinking, answer = self._renderer.split_thinking(self.turns[-1].text)
        return Reply(
            turn=len(self.turns) - 1,
            text=answer,
            thinking=thinking,
            finish_reason=completion.finish_reason,
        )

    def final_ids(self) -> tuple[int, ...]:
        """What the policy would have read next, where the episode was cut before it could.

        Nothing where that would be a fresh context, or longer than the model can read.
        """
        ending = self._session.ending
        if ending is None or not ending.is_truncation or not (self.turns and self._pending):
            return ()
        _, ids, extends = self._render()
        longest = self._sampler.max_model_len
        fits = longest is None or len(self._context) + len(ids) <= longest
        return ids if extends and fits else ()

    def _render(self, more: Sequence[Message] = ()) -> tuple[Prompt, tuple[int, ...], bool]:
        """The next prompt, with `more` at its end; its new ids; whether they extend the context."""
        unread = [*self._pending, *more]
        if self._prompt is None or self._begins:
            prompt, ids = self._renderer.open(unread)
            return prompt, ids, False
        reply_ids = self.turns[-1].completion.token_ids
        return self._renderer.extend(self._prompt, reply_ids, unread)

    def _room(self, context_tokens: int) -> int:
        """Tokens that the next reply may have; 0 or less if the prompt itself does not fit."""
        first = self._first_prompt_tokens
        if not self.turns:
            first = context_tokens
            if context_tokens > self._limits.max_prompt_tokens:
                return 0
        end = first + self._limits.max_response_tokens
        if self._sampler.max_model_len is not None:
            end = min(end, self._sampler.max_model_len)
        return end - context_tokens

    def _run_out(self) -> None:
        self._session.end(Ending.OUT_OF_TOKENS)
        raise EpisodeEnded("the context is full")

    async def _complete(self, context: tuple[int, ...], max_tokens: int) -> Completion:
        request = Request(
            token_ids=context,
            max_tokens=max_tokens,
            stop_ids=self._renderer.stop_ids,
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
            seed=derive_seed(self._seed, len(self.turns)),
            key=self._key,
        )
        try:
            with self._session.progress.waiting("the engine", self._session.task.id):
                completion = await self._sampler.complete(request)
        except BaseException as error:
            if not is_fault(error):
                raise
            raise EngineFailure(
                f"{origin(self._sampler)}: {type(error).__name__}: {error}"
            ) from error
        if not 0 < len(completion.token_ids) == len(completion.logprobs) <= max_tokens:
            raise EngineFailure(
                f"{origin(self._sampler)}: asked for 1 to {max_tokens} tokens with a "
                f"log-probability each, got {len(completion.token_ids)} tokens and "
                f"{len(completion.logprobs)} log-probabilities"
            )
        return completion

    def _record(
        self,
        prompt: Prompt,
        ids: tuple[int, ...],
        context: tuple[int, ...],
        completion: Completion,
        extends: bool,
    ) -> None:
        if not self.turns:
            self._first_prompt_tokens = len(context)
        elif not extends:
            self._sequence += 1
        self.turns.append(
            TurnTokens(
                sequence=self._sequence,
                prompt_ids=ids,
                completion=completion,
                text=self._renderer.reply_text(completion.token_ids),
                attempt=self._session.attempt,
            )
        )
        self.messages.append(self._renderer.reply_message(completion.token_ids))
        self._prompt = prompt
        self._context = context + completion.token_ids
        self._pending.clear()
        self._begins = False
