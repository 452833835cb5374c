"""The careful way to sample: each request alone, with the cache that the model itself brings."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from agentgym_torch.language_model import cache_argument, forward_at
from agentgym_torch.rows import Row


@attrs.define(eq=False)
class Memory:
    """What a model remembers of one episode."""

    token_ids: list[int] = attrs.field(factory=list)
    length: int = 0
    """How many of the ids the cache has seen."""
    cache: Any = None


class SoloPath:
    """Computes one row at a time, at batch size 1.

    What is sampled depends on the weights, the episode's prompts and its seeds alone, whatever else
    runs. It serves `deterministic: true`, and models whose memory is not made of one key and value
    per token (sliding windows, state spaces).

    A key's memory lives until it is released: were it dropped earlier, computing it anew in other
    portions could round differently.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache_argument = cache_argument(model)
        self._memories: dict[str, Memory] = {}
        self._running: tuple[Row, Memory] | None = None

    def admit(self, row: Row) -> bool:
        """One at a time."""
        if self._running is not None:
            return False
        memory = self._memories.get(row.request.key, Memory())
        if memory.length >= len(row.token_ids) or (
            memory.token_ids[: memory.length] != row.token_ids[: memory.length]
        ):
            memory = Memory()  # a state space cannot go back
        memory.token_ids = row.token_ids
        if row.request.key:
            self._memories[row.request.key] = memory
        self._running = (row, memory)
        return True

    def batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """One forward pass of the one row."""
        yield list(rows)

    def forward(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        """Compute what is pending of the row.

        Returns:
            The row, and the logits_1V of its next id.
        """
        assert self._running is not None
        row, memory = self._running
        inputs: dict[str, Any] = {}
        if self._cache_argument is not None:
            inputs = {"use_cache": True, self._cache_argument: memory.cache}
        ids_1T = torch.tensor([row.token_ids[memory.length :]], device=self._model.device)
        last = torch.tensor([ids_1T.shape[1] - 1], device=self._model.device)
        logits_1V, outputs = forward_at(
            self._model, torch.zeros_like(last), last, input_ids=ids_1T, **inputs
        )
        if self._cache_argument is not None:
            memory.cache = outputs[self._cache_argument]
            memory.length = len(row.token_ids)
        return [row], logits_1V

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
