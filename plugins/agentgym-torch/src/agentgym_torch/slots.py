"""The fast way to sample: all running requests in one batch, over a cache that outlives them."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from agentgym_torch.language_model import cache_argument, forward_at
from agentgym_torch.rows import Row
from agentgym_torch.slot_cache import Plan, SlotCache

PREFILL_TOKENS = 2048
"""Most ids of prompts in one forward pass: bounds its memory, and keeps a CPU in its caches."""
WORTH_COPYING = 16
"""Fewest ids for which a prefix is copied from another slot rather than computed again."""
WORTH_VIEWING = 0.6
"""Share of busy slots from which idle ones between them are computed along with them: reading the
cache in place then costs less than gathering the busy ones."""


@attrs.define(eq=False)
class Slot:
    """One line of the cache. It keeps its ids between the turns of an episode."""

    index: int
    key: str = ""
    token_ids: list[int] = attrs.field(factory=list)
    length: int = 0
    """How many of the ids, from the first, have their keys and values stored."""
    busy: bool = False
    last_used: int = 0

    def shares(self, token_ids: Sequence[int], length: int) -> bool:
        """Whether the stored ids begin with the first `length` of these."""
        return self.length >= length and self.token_ids[:length] == token_ids[:length]


class SlotPath:
    """Computes many rows together. Which slot a row has depends on the order of requests alone."""

    def __init__(self, model: Any, num_slots: int) -> None:
        self._model = model
        self._device = model.device
        self._cache_argument = cache_argument(model) or ""
        self._cache = SlotCache(num_slots)
        self._slots = [Slot(index) for index in range(num_slots)]
        self._by_key: dict[str, Slot] = {}
        self._by_row: dict[Row, Slot] = {}
        self._newcomers: set[Row] = set()
        self._clock = 0

    def admit(self, row: Row) -> bool:
        """Give the row its key's slot, else an idle one; False if there is none."""
        key = row.request.key
        slot = self._by_key.get(key)
        if slot is None or slot.busy:
            slot = self._least_recently_used()
            if slot is None:
                return False
            self._by_key.pop(slot.key, None)
            slot.key = key
            if key:
                self._by_key[key] = slot
        # One id at least must be computed, for its logits.
        known = _common_prefix(slot.token_ids[: slot.length], row.token_ids)
        slot.length = min(known, len(row.token_ids) - 1)
        slot.token_ids = row.token_ids
        slot.busy = True
        self._by_row[row] = slot
        if slot.length == 0:
            self._newcomers.add(row)
        return True

    def batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """The forward passes of one round: prompts first, then one more id for everyone."""
        while behind := [row for row in rows if self._pending(row) > 1]:
            yield self._prefill_batch(behind)
        if rows:
            yield list(rows)

    def forward(self, rows: Sequence[Row]) -> tuple[list[Row], Tensor]:
        """Compute what is pending of the rows.

        Returns:
            The R rows that wait for their next id, and its logits_RV.
        """
        rows = sorted(rows, key=lambda row: self._by_row[row].index)
        slots = [self._by_row[row] for row in rows]
        counts = [min(self._pending(row), PREFILL_TOKENS) for row in rows]
        self._cache.reserve(max(slot.length + n for slot, n in zip(slots, counts, strict=True)))
        lines, inputs = self._lay_out(slots, np.array(counts))
        logits_RV, _ = forward_at(
            self._model,
            self._tensor(lines),
            self._tensor(np.array(counts) - 1),
            use_cache=True,
            **{self._cache_argument: self._cache},
            **inputs,
        )
        for slot, count in zip(slots, counts, strict=True):
            slot.length += count
        ready = [i for i, row in enumerate(rows) if self._pending(row) == 0]
        for i in ready:
            self._newcomers.discard(rows[i])
        if len(ready) < len(rows):
            logits_RV = logits_RV[ready]
        return [rows[i] for i in ready], logits_RV

    def leave(self, row: Row, *, failed: bool = False) -> None:
        """The row is over. Its slot keeps what was computed, unless that failed."""
        slot = self._by_row.pop(row)
        self._newcomers.discard(row)
        self._clock += 1
        slot.last_used = self._clock
        slot.busy = False
        if failed:
            slot.length = 0
        self._forget_if_unused()

    def release(self, key: str) -> None:
        """Let others have the key's slot."""
        slot = self._by_key.pop(key, None)
        if slot is not None:
            slot.key = ""
        self._forget_if_unused()

    def _forget_if_unused(self) -> None:
        """Between the steps of a run no key is in use: each begins as with a new sampler.

        So a resumed run computes the very batches of one that was never stopped, and its floating
        point numbers are equal to the last bit.
        """
        if not self._by_row and not self._by_key:
            self.forget()

    def forget(self) -> None:
        """Nothing that is stored is right any more. Every row has left."""
        assert not self._by_row, "rows must leave first"
        self._cache.clear()
        self._slots = [Slot(index) for index in range(len(self._slots))]
        self._by_key.clear()
        self._clock = 0

    def _pending(self, row: Row) -> int:
        return len(row.token_ids) - self._by_row[row].length

    def _least_recently_used(self) -> Slot | None:
        idle = [slot for slot in self._slots if not slot.busy]
        return min(idle, key=lambda slot: (bool(slot.key), slot.last_used), default=None)

    def _prefill_batch(self, behind: Sequence[Row]) -> list[Row]:
        """As many rows as fit, of similar lengths; prompts that begin alike are computed once."""
        lenders = [slot for slot in self._slots if slot.length >= WORTH_COPYING]
        for row in behind:
            if row in self._newcomers:
                self._borrow(row, lenders)
        batch: list[Row] = []
        for row in sorted(behind, key=self._pending):
            width = min(self._pending(row), PREFILL_TOKENS)
            if batch and width * (len(batch) + 1) > PREFILL_TOKENS:
                break
            if not self._waits_for(row, batch):
                batch.append(row)
        return batch

    def _borrow(self, row: Row, lenders: Sequence[Slot]) -> None:
        """Copy the beginning of a newcomer from a slot that begins alike."""
        slot = self._by_row[row]
        known = slot.length
        source = slot
        for other in lenders:
            wanted = known + WORTH_COPYING
            if wanted < len(row.token_ids) and other.shares(row.token_ids, wanted):
                shared = _common_prefix(other.token_ids[: other.length], row.token_ids)
                known, source = min(shared, len(row.token_ids) - 1), other
        if source is not slot:
            self._cache.copy_prefix(source.index, slot.index, known)
            slot.length = known

    def _waits_for(self, row: Row, batch: Sequence[Row]) -> bool:
        """Whether the row can borrow from one of the batch, once that is computed."""
        if row not in self._newcomers:
            return False
        wanted = self._by_row[row].length + WORTH_COPYING
        begin = row.token_ids[:wanted]
        return wanted < len(row.token_ids) and any(
            other.token_ids[:wanted] == begin for other in batch
        )

    def _lay_out(self, slots: Sequence[Slot], counts: np.ndarray) -> tuple[np.ndarray, dict]:
        """Arrange the pending ids as the model's [N, T] arguments, and plan the cache for them.

        Args:
            slots: R of them, in ascending order.
            counts: of pending ids, one for each.

        Returns:
            lines_R, the line of the batch that each row has, and the model's arguments.
        """
        width = int(counts.max())
        indices = np.array([slot.index for slot in slots])
        starts = np.array([slot.length for slot in slots])
        lines, num_lines, read = _lines(indices, width)

        steps = np.arange(width)
        real = steps < counts[:, None]
        positions = starts[:, None] + np.minimum(steps, counts[:, None] - 1)
        ids_NT = np.zeros((num_lines, width), dtype=np.int64)
        for slot, line, start, count in zip(slots, lines, starts, counts, strict=True):
            ids_NT[line, :count] = slot.token_ids[start : start + count]
        positions_NT = np.zeros((num_lines, width), dtype=np.int64)
        positions_NT[lines] = positions
        places = (lines[:, None] * width + steps)[real]
        whole = len(places) == num_lines * width
        self._cache.plan = Plan(
            real_M=None if whole else self._tensor(places),
            slots_M=self._tensor(np.broadcast_to(indices[:, None], real.shape)[real]),
            positions_M=self._tensor(positions[real]),
            slots_N=read if isinstance(read, slice) else self._tensor(read),
            length=int(positions.max()) + 1,
        )
        positions_tensor = self._tensor(positions_NT)
        return lines, {
            "input_ids": self._tensor(ids_NT),
            "position_ids": positions_tensor,
            "attention_mask": self._causal_mask(positions_tensor),
        }

    def _causal_mask(self, positions_NT: Tensor) -> Tensor:
        """Added to the attention scores: of shape [N, 1, T, `plan.length`]."""
        dtype = self._model.dtype
        places_L = torch.arange(self._cache.plan.length, device=self._device)
        later = places_L > positions_NT[:, None, :, None]
        mask = torch.zeros(later.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(later, torch.finfo(dtype).min)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _lines(indices: np.ndarray, width: int) -> tuple[np.ndarray, int, np.ndarray | slice]:
    """Where the rows of these slots lie in the batch, how many lines it has, which slots it reads.

    Rows lie at their slots' distances, with idle slots between them, if most lines are busy; else
    closely packed.
    """
    first, span = int(indices.min()), int(indices.max() - indices.min()) + 1
    busy = len(indices) / span
    if busy == 1 or (width == 1 and busy >= WORTH_VIEWING):
        return indices - first, span, slice(first, first + span)
    return np.arange(len(indices)), len(indices), indices


def _common_prefix(known: Sequence[int], token_ids: Sequence[int]) -> int:
    """How many ids two sequences share from the first on."""
    length = min(len(known), len(token_ids))
    if known[:length] == token_ids[:length]:
        return length
    return next(i for i in range(length) if known[i] != token_ids[i])
