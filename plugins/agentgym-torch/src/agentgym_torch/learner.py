"""Parameters that learn together: one gradient with its norm, one AdamW, one way back."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from agentgym_core.ranks import Ranks
from agentgym_torch.ranks import sum_gradients
from agentgym_torch.snapshot import Snapshot

if TYPE_CHECKING:
    from agentgym_torch.backend import TorchBackend

REMEDY = "the weights are as they were; a smaller learning_rate or max_grad_norm may help"


class Learner:
    """A policy, or what a critic has of its own.

    A parameter that the loss does not depend on has no gradient, and AdamW passes over it: neither
    momentum nor decay moves it.
    """

    def __init__(
        self,
        backend: "TorchBackend",
        parameters: Iterable[Tensor],
        prefix: str = "",
        learning_rate: float | None = None,
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.prefix = prefix
        """Of its metrics, and of its place in a checkpoint."""
        self._factor = (learning_rate or backend.learning_rate) / backend.learning_rate
        self._limit = backend.max_grad_norm or math.inf
        self.optimizer: Any = torch.optim.AdamW(
            [
                {"params": [p for p in self.parameters if p.dim() >= 2]},
                {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=backend.learning_rate,
            betas=backend.betas,
            weight_decay=backend.weight_decay,
            fused=True,
        )

    def snapshot(self) -> Snapshot:
        """A copy of weights and optimizer, to go back to."""
        return Snapshot(self.parameters, self.optimizer)

    def sum_up(self, ranks: Ranks) -> float:
        """Add up the gradient over all ranks, and scale it down to the limit.

        Returns:
            Its norm before that.

        Raises:
            FloatingPointError: it is not finite.
        """
        sum_gradients(ranks, self.parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self._limit))
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient's norm is {norm}: {REMEDY}")
        return norm

    def norm(self) -> float:
        """Of the gradient as it stands."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, math.inf))

    def step(self, rate: float) -> None:
        """One optimizer step, where the backend's own learning rate stands at `rate`."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self._factor
        self.optimizer.step()
