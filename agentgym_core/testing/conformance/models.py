"""A tiny model for the suites of engines and backends, and its plain forward pass."""

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np

from agentgym_core import hf
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.types import FloatArray

_kept: list[Any] = []


@functools.cache
def tiny_model(seed: int = 1) -> ModelConfig:
    """Two layers with random weights, built once for each process and seed."""
    sizes = ScratchModel(
        hidden_size=32, num_layers=2, intermediate_size=48, max_position_embeddings=256
    )
    folder = tempfile.TemporaryDirectory(prefix="agentgym-")
    _kept.append(folder)  # removed when the process ends
    path = Path(folder.name) / "model"
    words = " ".join(f"w{a}{b}" for a in "abcdefg" for b in "abcdefg")
    try:
        hf.build_scratch(sizes, [words], path, seed=seed)
    except ImportError as error:
        raise SkipTest(str(error)) from error
    return ModelConfig(path=str(path))


def plain_logprobs(policy: Any, token_ids: Sequence[int], temperature: float = 1.0) -> FloatArray:
    """Log-probability of each token given those before it, by one uncached forward pass."""
    import torch

    ids = torch.as_tensor(list(token_ids))
    with torch.no_grad():
        logits = policy(input_ids=ids[None], use_cache=False).logits[0, :-1]
    table = torch.log_softmax(logits.double() / temperature, dim=-1)
    return np.concatenate([[0.0], table.gather(1, ids[1:, None])[:, 0].numpy()])
