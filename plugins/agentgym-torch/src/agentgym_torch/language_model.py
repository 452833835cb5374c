"""What the engine and the backend both do with a model of transformers."""

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one, else the CPU; each rank of a machine has its own."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"`device: {name}` needs a GPU, and torch sees none; use `auto` or `cpu`")
    place, num = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if place >= num:
        raise ValueError(f"a GPU for each rank: this machine has {num}, and this is rank {place}")
    return torch.device("cuda", place)


def forward_at(model: Any, rows_M: Tensor, columns_M: Tensor, **inputs: Any) -> tuple[Tensor, Any]:
    """Run the model, and its head at M positions only.

    The head is much of the work where the vocabulary is large. Choosing the positions on its
    doorstep, rather than calling it ourselves, keeps what a model does to its logits afterwards
    (soft caps, scales).

    Args:
        model: a causal language model.
        rows_M: batch index of each position.
        columns_M: time index of each position.
        inputs: the model's arguments, `input_ids` [N, T] among them.

    Returns:
        logits_MV, and everything that the model returned.
    """
    head = model.get_output_embeddings()
    if head is None:
        outputs = model(**inputs)
        return outputs.logits[rows_M, columns_M], outputs
    with _input_replaced(head, lambda hidden_NTH: hidden_NTH[rows_M, columns_M][None]):
        outputs = model(**inputs)
    return outputs.logits[0], outputs


@contextlib.contextmanager
def _input_replaced(module: torch.nn.Module, replace: Callable[[Tensor], Tensor]) -> Iterator[None]:
    def replaced(_module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (replace(args[0]), *args[1:])

    hook = module.register_forward_pre_hook(replaced)
    try:
        yield
    finally:
        hook.remove()


def cache_argument(model: Any) -> str | None:
    """Under which name the model takes its cache: it differs between versions and models."""
    accepted = inspect.signature(model.forward).parameters
    names = ("cache", "past_key_values", "cache_params")
    return next((name for name in names if name in accepted), None)


@torch.no_grad()
def copy_weights(model: torch.nn.Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copy parameters by name into the model. Tied ones may come under any of their names.

    Raises:
        ValueError: a name is unknown, or a parameter did not come.
    """
    own = model.state_dict(keep_vars=True)
    came: set[int] = set()
    for name, tensor in weights:
        if name not in own:
            raise ValueError(f"the weights hold '{name}', which the model does not have")
        own[name].copy_(tensor)
        came.add(id(own[name]))
    missing = [name for name, tensor in model.named_parameters() if id(tensor) not in came]
    if missing:
        raise ValueError(
            f"the weights lack {len(missing)} parameters of the model, '{missing[0]}' first"
        )


def checkpoint_layers(model: Any) -> None:
    """Let the backward pass compute every layer's activations again, rather than keep them.

    transformers does this for layers in training mode only. They alone are put in it, and what
    they would then drop out themselves is set to nothing: dropout stays off.
    """
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True
            for name, value in vars(module).items():
                if "drop" in name and isinstance(value, float):
                    setattr(module, name, 0.0)
