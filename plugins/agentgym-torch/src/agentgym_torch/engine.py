"""The engine `local`: samples with transformers, in this process."""

from typing import Any, Literal

import attrs
from attrs.validators import ge, gt, le, optional

from agentgym_core.hf import load_causal_lm
from agentgym_core.protocols import Engine, Sampler, StartContext
from agentgym_torch.language_model import choose_device
from agentgym_torch.sampler import LocalSampler
from agentgym_torch.self_check import choose_path


@attrs.frozen(kw_only=True)
class LocalEngine(Engine):
    """Samples from any causal language model that transformers loads.

    Requests are computed in one batch, which they join and leave at any time, over a cache that
    keeps every episode's keys and values between its turns. Models for which this is not right
    are found at the start and computed one request at a time.
    """

    temperature: float = attrs.field(default=1.0, validator=ge(0))  # pyright: ignore[reportIncompatibleMethodOverride]
    """Of sampling in training. 0 is greedy, with the log-probabilities of temperature 1."""
    top_p: float = attrs.field(default=1.0, validator=[gt(0), le(1)])  # pyright: ignore[reportIncompatibleMethodOverride]
    top_k: int = attrs.field(default=0, validator=ge(0))  # pyright: ignore[reportIncompatibleMethodOverride]
    """0 is off."""
    max_batch_size: int = attrs.field(default=128, validator=ge(1))
    """Most requests at once, and of episodes whose cache is kept. With more episodes than this, the
    cache of the one that waited longest is dropped and computed again when it returns."""
    max_model_len: int | None = attrs.field(default=None, validator=optional(ge(1)))
    """Most tokens of prompt and reply together; by default what the model was made for."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` is the GPU where there is one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    deterministic: bool = False
    """Compute one request at a time, so that a reply depends on the weights, its episode and its
    seed alone, to the last bit."""

    async def start(self, context: StartContext) -> Sampler:
        """Load the model."""
        model = load_causal_lm(context.model, self.dtype).to(choose_device(self.device))
        model.requires_grad_(False)
        path = choose_path(model, self.max_batch_size, deterministic=self.deterministic)
        return LocalSampler(model, path, self._max_model_len(model))

    def _max_model_len(self, model: Any) -> int | None:
        own = getattr(model.config, "max_position_embeddings", None)
        lengths = [length for length in (self.max_model_len, own) if length is not None]
        return min(lengths, default=None)
