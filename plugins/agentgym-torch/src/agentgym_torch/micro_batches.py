"""Sequences as padded tensors, cut to what learning needs."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from agentgym_core.batching import rank_micro_batches
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.types import Row, TokenSequence, TokenTensors


@attrs.frozen(kw_only=True, eq=False)
class MicroBatch:
    """N sequences padded on the right to T tokens, of which M are evaluated.

    Only the mask's tokens are evaluated. Tokens after a sequence's last one do not matter, and are
    cut off. Padding stands after everything that matters, where causal attention does not look, so
    the model needs neither a mask nor positions of its own.
    """

    members: tuple[int, ...]
    """Which sequence each line is."""
    token_ids_NT: Tensor
    rows_M: Tensor
    columns_M: Tensor
    mask_NT: Tensor
    is_repeat: bool = False
    """Whether it is there for the sake of other ranks only: it counts for nothing."""

    def spread(self, values_M: Tensor) -> Tensor:
        """Values of the evaluated tokens in their places, as values_NT; 0 elsewhere."""
        values_NT = torch.zeros(self.mask_NT.shape, dtype=values_M.dtype, device=values_M.device)
        return values_NT.index_put((self.rows_M, self.columns_M), values_M)

    def pad(self, arrays: Sequence[np.ndarray]) -> Tensor:
        """One array per line, as float32 of shape [N, T]."""
        num_rows, width = self.mask_NT.shape
        padded_NT = np.zeros((num_rows, width), dtype=np.float32)
        for line, array in zip(padded_NT, arrays, strict=True):
            kept = array[:width]
            line[: len(kept)] = kept
        return torch.from_numpy(padded_NT).to(self.mask_NT.device)

    def token_tensors(
        self, rows: Sequence[Row], logprobs_NT: Tensor, values_NT: Tensor | None = None
    ) -> TokenTensors:
        """What `Algorithm.loss` gets. `rows` are all rows that `members` counts."""
        members = [rows[index] for index in self.members]

        def padded(name: str) -> Tensor | None:
            arrays = [getattr(row, name) for row in members]
            return None if arrays[0] is None else self.pad(arrays)

        return TokenTensors(
            logprobs_NT=logprobs_NT,
            mask_NT=self.mask_NT,
            advantages_NT=padded("advantages"),
            old_logprobs_NT=padded("old_logprobs"),
            sampled_logprobs_NT=padded("sampled_logprobs"),
            reference_logprobs_NT=padded("reference_logprobs"),
            values_NT=values_NT,
            old_values_NT=padded("old_values"),
            returns_NT=padded("returns"),
        )


@attrs.frozen
class _Cut:
    """A sequence up to its last evaluated token."""

    index: int
    length: int

    def __len__(self) -> int:
        return self.length


def pack(
    sequences: Sequence[TokenSequence] | Sequence[Row],
    max_tokens: int,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> list[MicroBatch]:
    """Divide sequences into micro-batches of N x T <= `max_tokens`, those of like length together.

    A sequence without a trained token is left out. Of several ranks each gets its share, in as many
    micro-batches as the others.

    Raises:
        ValueError: the mask holds a first token, which nothing predicts.
    """
    cuts: list[Any] = []
    for index, sequence in enumerate(sequences):
        places = np.flatnonzero(sequence.mask)
        if len(places) and places[0] == 0:
            raise ValueError(
                f"sequence {index} is to be trained on its first token, which nothing predicts; "
                "let the prompt come first"
            )
        if len(places):
            cuts.append(_Cut(index, int(places[-1]) + 1))
    divided, num_counted = rank_micro_batches(cuts, max_tokens, ranks.rank, ranks.size)
    return [
        _micro_batch(sequences, [cuts[i] for i in members], device, is_repeat=place >= num_counted)
        for place, members in enumerate(divided)
    ]


def _micro_batch(
    sequences: Sequence[TokenSequence] | Sequence[Row],
    cuts: Sequence[_Cut],
    device: torch.device,
    *,
    is_repeat: bool,
) -> MicroBatch:
    shape = len(cuts), max(map(len, cuts))
    token_ids_NT = np.zeros(shape, dtype=np.int64)
    mask_NT = np.zeros(shape, dtype=np.bool_)
    for row, cut in enumerate(cuts):
        sequence = sequences[cut.index]
        token_ids_NT[row, : len(cut)] = sequence.token_ids[: len(cut)]
        mask_NT[row, : len(cut)] = sequence.mask[: len(cut)]
    mask = torch.from_numpy(mask_NT).to(device)
    rows_M, columns_M = mask.nonzero(as_tuple=True)
    return MicroBatch(
        members=tuple(cut.index for cut in cuts),
        token_ids_NT=torch.from_numpy(token_ids_NT).to(device),
        rows_M=rows_M,
        columns_M=columns_M,
        mask_NT=mask,
        is_repeat=is_repeat,
    )
