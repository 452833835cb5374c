"""The careful way to sample: each request alone, with the cache that the model itself brings."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from agentgym_torch.language_model import cache_argument, forward_at
from agentgym_torch.rows import Row

Portions = Literal["all", "one", "again"]
"""How the ids that follow a cached context are fed: all in one pass; one by one, for state spaces,
whose code takes a longer pass for a new beginning; or not at all, the whole context being computed
again."""


@attrs.define(eq=False)
class Memory:
    """What a model remembers of one episode."""

    token_ids: list[int] = attrs.field(factory=list)
    length: int = 0
    """How many of the ids the cache has seen."""
    cache: Any = None

    def precedes(self, token_ids: Sequence[int]) -> bool:
        """Whether these ids go on where the memory ends."""
        return self.length < len(token_ids) and (
            self.token_ids[: self.length] == token_ids[: self.length]
        )


class SoloPath:
    """Computes one row at a time, at batch size 1.

    What is sampled depends on the weights, the episode's prompts and its seeds alone, whatever else
    runs. A key's memory lives until it is released: were it dropped earlier, computing it anew in
    other portions could round differently.
    """

    def __init__(self, model: Any, portions: Portions) -> None:
        self._model = model
        self._portions = portions
        self._cache_argument = cache_argument(model) or ""
        self._memories: dict[str, Memory] = {}
        self._running: tuple[Row, Memory] | None = None

    def admit(self, row: Row) -> bool:
        """One at a time."""
        if self._running is not None:
            return False
        key = row.request.key
        memory = self._memories.get(key)
        if memory is None or not memory.precedes(row.token_ids):
            memory = Memory()  # not every cache can go back
        memory.token_ids = row.token_ids
        if key:
            self._memories[key] = memory
        self._running = (row, memory)
        return True

    def batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """One forward pass of the one row."""
        yield list(rows)

    def forward(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        """Compute the next portion of the row.

        Returns:
            The row and its logits_1V if it now waits for its next id, else nothing.
        """
        assert self._running is not None
        row, memory = self._running
        assert list(rows) == [row]
        end = len(row.token_ids)
        if self._portions == "one" and memory.length > 0:
            end = memory.length + 1
        inputs: dict[str, Any] = {"use_cache": False}
        if self._portions != "again":
            inputs = {"use_cache": True, self._cache_argument: memory.cache}
        ids_1T = torch.tensor([row.token_ids[memory.length : end]], device=self._model.device)
        last = torch.tensor([ids_1T.shape[1] - 1], device=self._model.device)
        logits_1V, outputs = forward_at(
            self._model, torch.zeros_like(last), last, input_ids=ids_1T, **inputs
        )
        if self._portions != "again":
            memory.cache, memory.length = outputs[self._cache_argument], end
        ready = [row] if end == len(row.token_ids) else []
        return ready, logits_1V[: len(ready)]

    def leave(self, row: Row, *, failed: bool = False) -> None:
        """The row is over. Its memory stays for the next turn, unless that failed."""
        self._running = None
        if failed:
            self._memories.pop(row.request.key, None)

    def release(self, key: str) -> None:
        """Drop what is remembered of the key."""
        self._memories.pop(key, None)

    def forget(self) -> None:
        """The weights have changed: nothing that is remembered is right any more."""
        self._memories.clear()
