"""A request on its way through the engine, and the ways there are."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs
import numpy as np
from torch import Tensor

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


class Path(Protocol):
    """How rows are computed: many together (`SlotPath`) or each alone (`SoloPath`)."""

    def admit(self, row: Row) -> bool:
        """Make room for the row; False if it must wait."""
        ...

    def batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """The forward passes of one round. `rows` may shrink meanwhile."""
        ...

    def forward(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        """Return the R of the rows that wait for an id, and its logits_RV."""
        ...

    def leave(self, row: Row, *, failed: bool = False) -> None:
        """The row is over."""
        ...

    def release(self, key: str) -> None:
        """No more rows will carry the key."""
        ...

    def forget(self) -> None:
        """The weights have changed."""
        ...
