"""The backend `torch`: trains the whole model in this process."""

import logging
import math
from typing import Literal

import attrs
from attrs.validators import ge, gt, optional

from agentgym_core.hf import load_causal_lm, load_tokenizer
from agentgym_core.protocols import Backend, StartContext, Trainer
from agentgym_core.ranks import Ranks
from agentgym_torch.critic import CriticOptions
from agentgym_torch.language_model import choose_device
from agentgym_torch.ranks import connect
from agentgym_torch.trainer import TorchTrainer

log = logging.getLogger(__name__)


def _each_below_one(_instance: object, attribute: attrs.Attribute, value: tuple) -> None:
    if not all(0 <= number < 1 for number in value):
        raise ValueError(f"`{attribute.name}` must lie in [0, 1), got {value}")


@attrs.frozen(kw_only=True)
class TorchBackend(Backend):
    """AdamW over all parameters of one model on one device, or on one device for each rank.

    Weights and optimizer state are float32. Dropout is off: the policy that learns is the policy
    that sampled.
    """

    learning_rate: float = attrs.field(default=1e-6, validator=gt(0))
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up: `linear` and `cosine` fall to 0 at the end of the stage."""
    warmup_steps: int = attrs.field(default=0, validator=ge(0))
    """Training steps over which the learning rate rises from 0."""
    weight_decay: float = attrs.field(default=0.0, validator=ge(0))
    """Decoupled; of matrices only, not of biases and norms."""
    betas: tuple[float, float] = attrs.field(default=(0.9, 0.999), validator=_each_below_one)
    max_grad_norm: float | None = attrs.field(default=1.0, validator=optional(gt(0.0)))
    """Gradients with a larger norm are scaled down to it; null is off."""
    tokens_per_micro_batch: int = attrs.field(default=8192, validator=ge(1))
    """Most tokens computed at once, padding included. Bounds memory; the result is the same."""
    critic: CriticOptions = attrs.field(factory=CriticOptions)
    """The critic, where the algorithm or its estimator needs values."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the computation: `bfloat16` is autocast, with float32 weights."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, a third more time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` is the GPU where there is one."""

    peer_timeout_seconds: float = attrs.field(default=3600.0, validator=gt(0.0))
    """Longest that one of several ranks waits for the others, which may play longer episodes."""

    def connect(self) -> Ranks:
        """Join the processes of torchrun, or of whatever sets its variables."""
        return connect(self.peer_timeout_seconds)

    def start(self, context: StartContext) -> Trainer:
        """Load the model, and what `context.needs` asks for: a frozen copy of it, a critic."""
        if self.schedule != "constant" and context.num_steps <= self.warmup_steps:
            raise ValueError(
                f"schedule '{self.schedule}' needs more training steps ({context.num_steps}) than "
                f"warmup_steps ({self.warmup_steps})"
            )
        if self.critic != CriticOptions() and "values" not in context.needs:
            log.warning("the backend's `critic` has no effect: nothing in this stage needs values")
        return TorchTrainer(
            self,
            context,
            model=load_causal_lm(context.model).to(choose_device(self.device)),
            tokenizer=load_tokenizer(context.model),
        )

    def learning_rate_at(self, step: int, num_steps: int) -> float:
        """The learning rate of training step 0, 1, … of `num_steps`.

        With W warm-up steps: learning_rate x (step + 1) / (W + 1) before step W; from there, with
        p = (step - W) / (num_steps - W), x 1, x (1 - p), or x (1 + cos(pi p)) / 2.
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / (self.warmup_steps + 1)
        if self.schedule == "constant":
            return self.learning_rate
        progress = (step - self.warmup_steps) / (num_steps - self.warmup_steps)
        if self.schedule == "linear":
            return self.learning_rate * (1 - progress)
        return self.learning_rate * (1 + math.cos(math.pi * progress)) / 2
