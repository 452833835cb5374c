"""Whether a model may be computed in shared batches, found out by trying."""

import asyncio
import logging
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from agentgym_core.types import Request
from agentgym_torch.language_model import cache_argument
from agentgym_torch.rows import Row
from agentgym_torch.slots import SlotPath

MASKABLE = ("sdpa", "eager")
"""Attention implementations that take a mask of any shape."""
GROWING_ROPE = ("dynamic", "longrope")
"""Rotary embeddings that change with the longest sequence of the batch."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.2}
"""Of the logits, in their standard deviations. Rounding stays far below; a wrong mask or position
exceeds it."""

log = logging.getLogger(__name__)


def shares_batches(model: Any) -> bool:
    """Whether `SlotPath` computes the model rightly. Says why, where it does not."""
    reason = _obstacle(model)
    if reason is None:
        try:
            error = _largest_error(model)
        except Exception as failure:
            reason = f"its forward pass refuses our cache ({failure})"
        else:
            if not error < TOLERANCE[model.dtype]:
                reason = f"its logits are off by {error:.2g} standard deviations"
    if reason is not None:
        name = type(model).__name__
        log.warning("%s is sampled one request at a time, which is slow: %s", name, reason)
    return reason is None


def _obstacle(model: Any) -> str | None:
    """What a short trial would not show."""
    config = model.config.get_text_config(decoder=True)
    if cache_argument(model) is None:
        return "it takes no cache"
    if config._attn_implementation not in MASKABLE:
        return f"{config._attn_implementation} attention takes no mask of ours"
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") in GROWING_ROPE:
        return "its rotary embedding depends on the longest sequence of a batch"
    if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=config).layers):
        return "it has layers that do not attend to every earlier token"
    return None


@torch.inference_mode()
def _largest_error(model: Any) -> float:
    """Compare two rows of different lengths, computed together, with each alone and uncached."""
    vocabulary = model.get_input_embeddings().num_embeddings
    path = SlotPath(model, num_slots=3)
    rows = [_row([(7 * i + 3 * n) % vocabulary for i in range(n)]) for n in (12, 7)]
    for row in rows:
        path.admit(row)
    _, logits_RV = path.forward(rows)
    errors = [_error(model, row, logits_V) for row, logits_V in zip(rows, logits_RV, strict=True)]
    for row in rows:
        row.append(row.token_ids[1], 0.0)
    _, logits_RV = path.forward(rows)
    errors += [_error(model, row, logits_V) for row, logits_V in zip(rows, logits_RV, strict=True)]
    return max(errors)


def _error(model: Any, row: Row, logits_V: Tensor) -> float:
    ids_1T = torch.tensor([row.token_ids], device=model.device)
    alone_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1].float()
    return float((logits_V.float() - alone_V).abs().max() / alone_V.std())


def _row(token_ids: list[int]) -> Row:
    request = Request(token_ids=tuple(token_ids), max_tokens=8, stop_ids=frozenset())
    return Row(request=request, future=asyncio.get_running_loop().create_future())
