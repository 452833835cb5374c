"""The critic: the value of the state in which each token was sampled."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs.validators import gt, optional
from safetensors.torch import load_file
from torch import Tensor

from agentgym_core.contract import starting
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
    the policy's. It must have the policy's tokenizer."""
    learning_rate: float | None = attrs.field(default=None, validator=optional(gt(0.0)))
    """Of what is the critic's alone: a model of its own, or the head on a shared trunk. By default
    the policy's, whose warm-up and schedule it follows."""

    def __attrs_post_init__(self) -> None:
        if self.shared and self.path is not None:
            raise ValueError(
                "critic: `path` has no effect with `shared: true`, where policy and critic are one "
                "model: leave one of them out"
            )


class Critic:
    """A linear head on last hidden states. The head starts at 0, and so do all values."""

    def __init__(self, options: CriticOptions, policy: Any, model: ModelConfig) -> None:
        self.trunk: Any = None
        """The model of its own, without its head; None where it shares the policy's."""
        source = policy
        if not options.shared:
            source = _own_model(options, model).to(policy.device)
            _check_vocabulary(source, policy, options)
            self.trunk = _trunk(source)
        self._head = torch.nn.Linear(_width(source), 1).to(policy.device)
        torch.nn.init.zeros_(self._head.weight)
        torch.nn.init.zeros_(self._head.bias)

    def values(self, hidden_MH: Tensor) -> Tensor:
        """values_M of last hidden states, in float32 whatever the trunk computes in."""
        return self._head(hidden_MH.float())[:, 0]

    def parameters(self) -> list[Tensor]:
        """What is the critic's alone."""
        return list(self.state().values())

    def state(self) -> dict[str, Tensor]:
        """The same by name."""
        modules = {"head": self._head} | ({} if self.trunk is None else {"trunk": self.trunk})
        return {
            f"{place}.{name}": parameter
            for place, module in modules.items()
            for name, parameter in module.named_parameters()
        }

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Put back what `state` gave, and a file holds.

        Raises:
            ValueError: there is no such file, or it was written by another critic.
        """
        if not path.exists():
            raise ValueError(
                f"{path.name} is not there: what was saved had no critic. A stage of another name "
                "begins with one"
            )
        own, state = self.state(), load_file(path)
        shapes = [{n: t.shape for n, t in tensors.items()} for tensors in (own, state)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{path.name} holds another critic than this run's: the backend's `critic` must be "
                "what it was. A stage of another name begins with one of its own"
            )
        for name, tensor in own.items():
            tensor.copy_(state[name])


@contextlib.contextmanager
def head_input_kept(model: Any) -> Iterator[list[Tensor]]:
    """What the language-model head is given while this lasts: one hidden_MH of `forward_at`."""
    kept: list[Tensor] = []
    head = model.get_output_embeddings()
    hook = head.register_forward_hook(lambda _module, args, _output: kept.append(args[0][0]))
    try:
        yield kept
    finally:
        hook.remove()


def _own_model(options: CriticOptions, model: ModelConfig) -> Any:
    if options.path is None:
        return load_causal_lm(model)
    with starting("backend.critic.path"):
        return load_causal_lm(attrs.evolve(model, path=options.path, gguf_file=None))


def _check_vocabulary(source: Any, policy: Any, options: CriticOptions) -> None:
    own, needed = (m.get_input_embeddings().weight.shape[0] for m in (source, policy))
    if own < needed:
        raise ValueError(
            f"critic: the model of `path` ({options.path}) knows {own} tokens and the policy "
            f"{needed}; choose one with the policy's tokenizer"
        )


def _trunk(model: Any) -> Any:
    if model.base_model is model:
        raise ValueError(
            f"{type(model).__name__} has no trunk apart from its head, on which a critic could "
            "stand; choose an estimator without a critic"
        )
    return model.base_model


def _width(model: Any) -> int:
    """Of what the language-model head reads."""
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"{type(model).__name__} does not say where its head is, in whose place a critic's "
            "would stand; choose an estimator without a critic"
        )
    return int(head.weight.shape[1])
