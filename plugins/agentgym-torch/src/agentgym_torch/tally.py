"""What an update says of itself."""

from collections.abc import Mapping

from torch import Tensor

from agentgym_core.ranks import ALONE, Ranks


class Tally:
    """Sums over the micro-batches and optimizer steps of one update."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self._ranks = ranks
        self._steps: list[Mapping[str, float]] = []
        self._sums: dict[str, Tensor] = {}
        self._tokens = 0

    def add_step(self, **values: float) -> None:
        """Values of one optimizer step."""
        self._steps.append(values)

    def add_tokens(self, mask_NT: Tensor, metrics: Mapping[str, Tensor]) -> None:
        """Values of every token of one micro-batch, each of shape [N, T]."""
        self._tokens += int(mask_NT.sum())
        for name, values_NT in metrics.items():
            total = values_NT.detach()[mask_NT].double().sum()
            self._sums[name] = self._sums[name] + total if name in self._sums else total

    def metrics(self) -> dict[str, float]:
        """Means over the steps, and over the mask's tokens of all ranks."""
        own = {name: float(total) for name, total in self._sums.items()}
        gathered = self._ranks.gather((self._tokens, own))
        num_tokens = sum(tokens for tokens, _ in gathered)
        names = dict.fromkeys(name for _, sums in gathered for name in sums)
        metrics = {
            name: sum(sums.get(name, 0.0) for _, sums in gathered) / num_tokens for name in names
        }
        for name in self._steps[0] if self._steps else ():
            metrics[name] = sum(step[name] for step in self._steps) / len(self._steps)
        return metrics
