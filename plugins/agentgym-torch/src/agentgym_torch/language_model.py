"""What the engine and the backend both do with a model of transformers."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"`device: {name}` needs a GPU, and torch sees none; use `auto` or `cpu`")
    return torch.device(name)


def logits_at(
    model: Any, rows_M: Tensor, columns_M: Tensor, *, input_ids: Tensor, **inputs: Any
) -> Tensor:
    """Run the model, and its head at M positions only.

    The head is most of the work of a small model with a large vocabulary. Choosing the positions
    on its doorstep, rather than calling it ourselves, keeps what a model does to its logits
    afterwards (soft caps, scales).

    Args:
        model: a causal language model.
        rows_M: batch index of each position.
        columns_M: time index of each position.
        input_ids: of shape [N, T].
        inputs: further arguments of the model.

    Returns:
        logits_MV
    """
    head = model.get_output_embeddings()
    if head is None:
        return model(input_ids=input_ids, **inputs).logits[rows_M, columns_M]
    with _inputs_replaced(head, lambda hidden_NTH: hidden_NTH[rows_M, columns_M][None]):
        return model(input_ids=input_ids, **inputs).logits[0]


@contextlib.contextmanager
def _inputs_replaced(module: torch.nn.Module, replace: Any) -> Iterator[None]:
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
