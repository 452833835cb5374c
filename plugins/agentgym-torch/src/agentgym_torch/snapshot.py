"""Weights and optimizer state as they were."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Snapshot:
    """A copy in the host's memory, to go back to when a later optimizer step fails."""

    def __init__(self, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
        self._parameters = parameters
        self._optimizer = optimizer
        self._weights = [_copy(parameter) for parameter in parameters]
        self._states = [
            {name: _copy(value) for name, value in optimizer.state.get(parameter, {}).items()}
            for parameter in parameters
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back."""
        for parameter, weights, state in zip(
            self._parameters, self._weights, self._states, strict=True
        ):
            parameter.copy_(weights)
            if not state:
                self._optimizer.state.pop(parameter, None)
            for name, value in state.items():
                self._optimizer.state[parameter][name].copy_(value)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
