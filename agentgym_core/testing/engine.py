"""A scripted engine: it says what a test tells it to, token by token."""

from collections.abc import Callable, Sequence

import attrs

from agentgym_core.protocols import Sampler, Weights
from agentgym_core.types import Completion, Request


@attrs.define(kw_only=True)
class ScriptedSampler(Sampler):
    """Answers each request with the next ids of the script of its key, or what a function says.

    Example: ScriptedSampler(script=lambda request: renderer.reply_ids(Message("assistant", "hi")))
    """

    script: Callable[[Request], Sequence[int]]
    """Ids to answer with; those beyond `request.max_tokens` are cut off."""
    max_model_len: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    version: int = 0
    requests: list[Request] = attrs.field(factory=list[Request])
    released: list[str] = attrs.field(factory=list[str])

    async def complete(self, request: Request) -> Completion:
        """See `Sampler`. The log-probability of the token at place i of the reply is -(i + 1)."""
        self.requests.append(request)
        ids = tuple(self.script(request))[: request.max_tokens]
        return Completion(
            token_ids=ids,
            logprobs=tuple(-float(place + 1) for place in range(len(ids))),
            finish_reason="stop" if ids and ids[-1] in request.stop_ids else "length",
            policy_version=self.version,
        )

    async def load(self, weights: Weights, version: int) -> None:
        """The script stays; the version moves."""
        self.version = version

    def release(self, key: str) -> None:
        """Remembered, for tests."""
        self.released.append(key)

    async def close(self) -> None:
        """Nothing to free."""
