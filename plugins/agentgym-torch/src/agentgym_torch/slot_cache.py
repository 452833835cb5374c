"""Keys and values of many sequences at once, each in a slot of its own."""

from typing import Any

import attrs
from torch import Tensor
from transformers import Cache


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """Where one forward pass over [N, T] ids writes, and what its queries may read."""

    real_M: Tensor | None
    """Indices of the M real tokens among the flattened N x T; None where there is no padding."""
    slots_M: Tensor
    """The slot each of them belongs to."""
    positions_M: Tensor
    """Its place in the slot."""
    slots_N: Tensor | slice
    """The slot of each line of the batch. A slice is read in place, a tensor copies."""
    length: int
    """Longest slot that is read, in tokens."""


class SlotCache(Cache):
    """A cache of transformers whose lines have lengths of their own.

    Each layer holds [slots, capacity, heads, head size], allocated when the first keys arrive and
    grown when a sequence outgrows it. A forward pass follows `plan`; the causal mask that goes with
    it is the caller's to give.
    """

    plan: Plan

    def __init__(self, num_slots: int) -> None:
        super().__init__(layers=[])
        self._num_slots = num_slots
        self._capacity = 0
        self._stored: list[tuple[Tensor, Tensor]] = []

    def reserve(self, length: int) -> None:
        """Make room for sequences of that many tokens."""
        if length <= self._capacity:
            return
        self._capacity = max(64, 1 << (length - 1).bit_length())
        self._stored = [(self._grown(keys), self._grown(values)) for keys, values in self._stored]

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Let a slot begin with the first tokens of another one."""
        for layer in self._stored:
            for states in layer:
                states[target, :length] = states[source, :length]

    def clear(self) -> None:
        """Drop everything, and the memory."""
        self._stored = []
        self._capacity = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new states and return all that the batch may attend to.

        Args:
            key_states: of shape [N, heads, T, head size].
            value_states: likewise.
            layer_idx: number of the layer.
            args: ignored, as are `kwargs`.
            kwargs: what a model passes on to caches of other kinds.

        Returns:
            Keys and values, each [N, heads, `plan.length`, head size].
        """
        if layer_idx == len(self._stored):
            self._stored.append((self._empty(key_states), self._empty(value_states)))
        keys, values = self._stored[layer_idx]
        return self._updated(keys, key_states), self._updated(values, value_states)

    def _updated(self, stored: Tensor, states_NHTD: Tensor) -> Tensor:
        plan = self.plan
        states_NTHD = states_NHTD.transpose(1, 2)
        states_MHD = states_NTHD.reshape(-1, *states_NTHD.shape[2:])
        if plan.real_M is not None:
            states_MHD = states_MHD[plan.real_M]
        index_M = plan.slots_M * self._capacity + plan.positions_M
        stored.view(-1, *stored.shape[2:]).index_copy_(0, index_M, states_MHD)
        return stored[plan.slots_N, : plan.length].transpose(1, 2)

    def _empty(self, states_NHTD: Tensor) -> Tensor:
        _, heads, _, size = states_NHTD.shape
        return states_NHTD.new_zeros(self._num_slots, self._capacity, heads, size)

    def _grown(self, stored: Tensor) -> Tensor:
        grown = stored.new_zeros(stored.shape[0], self._capacity, *stored.shape[2:])
        grown[:, : stored.shape[1]] = stored
        return grown
