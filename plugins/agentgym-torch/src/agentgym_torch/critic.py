"""The critic: the value of the state in which each token was sampled."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs.validators import gt, optional
from torch import Tensor

from agentgym_core.hf import load_causal_lm
from agentgym_core.model import ModelConfig


@attrs.frozen(kw_only=True)
class CriticOptions:
    """What the critic is made of. It is built where an algorithm or estimator needs `values`."""

    shared: bool = False
    """One trunk for policy and critic, which then is a head on the policy's last hidden states;
    otherwise the critic is a model of its own."""
    path: str | None = None
    """The model that a critic of its own starts as, without its language-model head; by default
    the policy's."""
    learning_rate: float | None = attrs.field(default=None, validator=optional(gt(0.0)))
    """Of a critic of its own, or of a shared trunk's head; by default the policy's. It follows the
    policy's schedule."""

    def __attrs_post_init__(self) -> None:
        if self.shared and self.path is not None:
            raise ValueError(
                "critic: `path` has no effect with `shared: true`, where policy and critic are one "
                "model: leave one of them out"
            )


class Critic:
    """A linear head on a trunk's last hidden states. The head starts at 0, and so do all values."""

    def __init__(self, options: CriticOptions, policy: Any, model: ModelConfig) -> None:
        self.shared = options.shared
        self._policy = policy
        self._trunk: Any = None
        if not self.shared:
            own = attrs.evolve(model, path=options.path or model.path)
            if options.path is not None:
                own = attrs.evolve(own, gguf_file=None)
            self._trunk = trunk_of(load_causal_lm(own).to(policy.device))
        trunk = trunk_of(policy) if self.shared else self._trunk
        self._head = torch.nn.Linear(_width(trunk.config), 1).to(policy.device)
        torch.nn.init.zeros_(self._head.weight)
        torch.nn.init.zeros_(self._head.bias)

    @property
    def trunk(self) -> Any:
        """The model of its own; None where it shares the policy's."""
        return self._trunk

    @property
    def modules(self) -> list[torch.nn.Module]:
        """Everything that is the critic's alone."""
        return [self._head] if self._trunk is None else [self._trunk, self._head]

    def parameters(self) -> list[Tensor]:
        """Of all its modules."""
        return [p for m in self.modules for p in m.parameters() if p.requires_grad]

    def hidden(self, rows_M: Tensor, columns_M: Tensor, **inputs: Any) -> Tensor:
        """Run its own trunk: hidden_MH at M positions."""
        assert self._trunk is not None
        return self._trunk(**inputs).last_hidden_state[rows_M, columns_M]

    def head(self, hidden_MH: Tensor) -> Tensor:
        """values_M of last hidden states."""
        return self._head(hidden_MH.to(self._head.weight.dtype))[:, 0].float()

    def state(self) -> dict[str, Tensor]:
        """Its weights, by name."""
        return {
            f"{place}.{name}": tensor.detach()
            for place, module in zip(("head", "trunk"), reversed(self.modules), strict=False)
            for name, tensor in module.named_parameters()
        }

    @torch.no_grad()
    def load(self, state: dict[str, Tensor], path: Path) -> None:
        """Put back what `state` gave.

        Raises:
            ValueError: the file at `path` was written by another critic.
        """
        own = self.state()
        if own.keys() != state.keys():
            raise ValueError(
                f"{path} holds another critic than this run's: was `critic.shared` another then?"
            )
        for name, tensor in own.items():
            tensor.copy_(state[name])


def trunk_of(model: Any) -> Any:
    """A causal language model without its head.

    Raises:
        ValueError: transformers does not say which part that is.
    """
    trunk = model.base_model
    if trunk is model:
        raise ValueError(
            f"{type(model).__name__} has no trunk apart from its head, on which a critic could "
            "stand; choose an estimator without a critic"
        )
    return trunk


@contextmanager
def hidden_states_kept(model: Any) -> Iterator[list[Tensor]]:
    """What the language-model head is given while this lasts: hidden_MH, first."""
    kept: list[Tensor] = []
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"{type(model).__name__} does not say where its head is: a critic cannot share its "
            "trunk. Set the backend's `critic: {shared: false}`"
        )
    hook = head.register_forward_hook(lambda _module, args, _output: kept.append(args[0][0]))
    try:
        yield kept
    finally:
        hook.remove()


def _width(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(text.hidden_size)
