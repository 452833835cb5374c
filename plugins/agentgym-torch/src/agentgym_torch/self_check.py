"""How a model can be sampled, found out by trying: the fastest way that computes it rightly."""

import asyncio
import logging
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from agentgym_core.types import Request
from agentgym_torch.language_model import cache_argument
from agentgym_torch.rows import Path, Row
from agentgym_torch.slots import SlotPath
from agentgym_torch.solo import Portions, SoloPath

MASKABLE = ("sdpa", "eager")
"""Attention implementations that take a mask of any shape."""
GROWING_ROPE = ("dynamic", "longrope")
"""Rotary embeddings that change with the longest sequence of the batch."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Of the logits' mean error, in their standard deviations. Rounding stays far below it, at 1e-5 and
0.03 for a model of 135M parameters; a wrong mask, position or state exceeds it."""

log = logging.getLogger(__name__)


def choose_path(model: Any, num_slots: int, *, deterministic: bool) -> Path:
    """Shared batches if the model allows and `deterministic` does not forbid it, else one by one.

    Where shared batches are refused, a warning says why.
    """
    if not deterministic:
        reason = _obstacle(model) or _fault(model, SlotPath(model, num_slots=3))
        if reason is None:
            return SlotPath(model, num_slots)
        name = type(model).__name__
        log.warning("%s is sampled one request at a time, which is slow: %s", name, reason)
    return SoloPath(model, _portions(model))


def _portions(model: Any) -> Portions:
    if cache_argument(model) is not None:
        for portions in ("all", "one"):
            if _fault(model, SoloPath(model, portions)) is None:
                return portions
    return "again"


def _obstacle(model: Any) -> str | None:
    """What keeps a model from sharing batches and would not show in a short trial."""
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


def _fault(model: Any, path: Path) -> str | None:
    """Play two conversations of two turns; compare every logit with the plain forward pass."""
    try:
        error = _largest_error(model, path)
    except Exception as refusal:
        return f"its forward pass refuses the cache ({refusal})"
    if not error < TOLERANCE[model.dtype]:
        return f"its logits would be off by {error:.2g} standard deviations"
    return None


@torch.inference_mode()
def _largest_error(model: Any, path: Path) -> float:
    vocabulary = model.get_input_embeddings().num_embeddings
    histories = [[(7 * i + 3 * n) % vocabulary for i in range(n)] for n in (12, 7)]
    errors: list[float] = []
    for _ in range(2):
        rows = [_row(ids, key=str(number)) for number, ids in enumerate(histories)]
        waiting = rows
        while waiting:
            running = [row for row in waiting if path.admit(row)]
            waiting = [row for row in waiting if row not in running]
            while running:
                for batch in path.batches(running):
                    for row, logits_V in zip(*path.forward(batch), strict=True):
                        errors.append(_error(model, row, logits_V))
                        row.append(row.token_ids[1], 0.0)
                        if row.finish_reason is not None:
                            running.remove(row)
                            path.leave(row)
        histories = [[*row.token_ids, *row.token_ids[:2]] for row in rows]
    return max(errors)


def _error(model: Any, row: Row, logits_V: Tensor) -> float:
    ids_1T = torch.tensor([row.token_ids], device=model.device)
    alone_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1].float()
    return float((logits_V.float() - alone_V).abs().mean() / alone_V.std())


def _row(token_ids: list[int], key: str) -> Row:
    request = Request(token_ids=tuple(token_ids), max_tokens=2, stop_ids=frozenset(), key=key)
    return Row(request=request, future=asyncio.get_running_loop().create_future())
