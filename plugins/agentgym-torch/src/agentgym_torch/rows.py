"""One request on its way through the engine."""

import asyncio

import attrs
import numpy as np

from agentgym_core.types import Completion, FinishReason, Request


@attrs.define(eq=False)
class Row:
    """A request, the ids sampled for it so far, and who waits for them."""

    request: Request
    future: asyncio.Future[Completion]
    token_ids: list[int] = attrs.field(init=False)
    """Prompt and sampled ids, in one list."""
    logprobs: list[float] = attrs.field(init=False)
    uniforms: np.random.Generator = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was sampled; the same random numbers follow again."""
        self.token_ids = list(self.request.token_ids)
        self.logprobs = []
        self.uniforms = np.random.Generator(np.random.Philox(key=self.request.seed))

    def append(self, token_id: int, logprob: float) -> None:
        """Record a sampled id."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)

    @property
    def finish_reason(self) -> FinishReason | None:
        """None while it goes on."""
        if self.logprobs and self.token_ids[-1] in self.request.stop_ids:
            return "stop"
        if len(self.logprobs) == self.request.max_tokens:
            return "length"
        return None

    def completion(self, finish_reason: FinishReason, version: int) -> Completion:
        """What the caller gets."""
        return Completion(
            token_ids=tuple(self.token_ids[len(self.request.token_ids) :]),
            logprobs=tuple(self.logprobs),
            finish_reason=finish_reason,
            policy_version=version,
        )
