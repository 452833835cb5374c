"""The blocks `limits`, `training` and `evaluation`: plain numbers that the run loop obeys."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import attrs


def at_least(minimum: int) -> Callable[[Any, "attrs.Attribute[int]", int], None]:
    """A validator for numbers with a lower bound."""

    def validate(_: Any, field: "attrs.Attribute[int]", value: int) -> None:
        if value < minimum:
            raise ValueError(f"{field.name} must be at least {minimum}, got {value}")

    return validate


def refuse_idle(component: object, keys: Iterable[str], why: str) -> None:
    """Refuse fields that were set though nothing reads them.

    Raises:
        ValueError: one of them is not its default; the message names it, and says `why`.
    """
    fields = attrs.fields_dict(cast("type[Any]", type(component)))
    for key in keys:
        if getattr(component, key) != fields[key].default:
            raise ValueError(f"{key} has no effect {why}: leave it out, or change that")


def _positive(_: Any, field: "attrs.Attribute[float]", value: float) -> None:
    if not value > 0:
        raise ValueError(f"{field.name} must be above 0, got {value:g}")


@attrs.frozen(kw_only=True)
class Limits:
    """The `limits` block: what an episode may take. The engine may allow fewer tokens."""

    max_prompt_tokens: int = attrs.field(validator=at_least(1))
    """Bounds the first turn's prompt: the task and the instructions."""
    max_response_tokens: int = attrs.field(validator=at_least(1))
    """Bounds everything after it in the context: replies and observations together. Where an agent
    begins a fresh context, that one has the same bound."""
    max_tokens: int = attrs.field(validator=at_least(1))
    """Bounds one reply."""
    max_call_seconds: float = attrs.field(default=300.0, validator=_positive)
    """Bounds one call of the environment, such as a step: the episode fails if it takes longer."""

    def __attrs_post_init__(self) -> None:
        if self.max_tokens > self.max_response_tokens:
            raise ValueError(
                f"max_tokens bounds one reply and must fit into max_response_tokens, which bounds "
                f"all of them: {self.max_tokens} is more than {self.max_response_tokens}"
            )


@attrs.frozen(kw_only=True)
class TrainingConfig:
    """The `training` block: how long, and on how much in each step."""

    num_steps: int = attrs.field(validator=at_least(1))
    """Training steps of the stage."""
    tasks_per_step: int = attrs.field(default=16, validator=at_least(1))
    """Tasks in one step."""
    group_size: int = attrs.field(default=8, validator=at_least(1))
    """Attempts at each task of a step; they form one group."""
    save_every: int = attrs.field(default=25, validator=at_least(0))
    """Steps between checkpoints; 0 saves only after the last step."""
    keep_checkpoints: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(at_least(1))
    )
    """How many of the newest checkpoints of the stage stay on disk, beside the best evaluation's;
    null keeps all."""
    max_concurrent_episodes: int = attrs.field(default=128, validator=at_least(1))
    """Most episodes in play at once, in training and in evaluation."""
    max_retries: int = attrs.field(default=2, validator=at_least(0))
    """How often a failed episode is played anew, with the same seed, before it is dropped."""
    max_failed_fraction: float = 0.1
    """Largest share of a step's episodes that may be dropped; more stop the run."""
    stall_seconds: float | None = attrs.field(
        default=1800.0, validator=attrs.validators.optional(_positive)
    )
    """The run is stopped if nothing makes progress for that long; null waits for ever."""

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.max_failed_fraction <= 1:
            raise ValueError(
                f"max_failed_fraction is a share between 0 and 1, got {self.max_failed_fraction}"
            )


@attrs.frozen(kw_only=True)
class EvaluationConfig:
    """The `evaluation` block. Its horizon, sampling and seed are its own, never those of training.

    Success at a growing training horizon would not be comparable from step to step.
    """

    max_rounds: int = attrs.field(validator=at_least(1))
    """Rounds an evaluation episode may take, whatever the training horizon."""
    every: int = attrs.field(default=0, validator=at_least(0))
    """Steps between evaluations; 0 evaluates only as `at_start` and `at_end` say."""
    at_start: bool = True
    """Whether to evaluate before the first step."""
    at_end: bool = True
    """Whether to evaluate after the last step, whatever `every` says."""
    split: str = "test"
    """The split whose tasks are played."""
    num_tasks: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(at_least(1))
    )
    """How many tasks of the split, the same ones every time; null plays all."""
    num_samples: int = attrs.field(default=1, validator=at_least(1))
    """Attempts at each task and temperature: the n of pass@k."""
    temperatures: tuple[float, ...] = (0.0,)
    """Sampling temperatures, each evaluated and reported apart; 0 is greedy."""
    top_p: float = 1.0
    """Tokens are drawn from the most likely ones that together have this probability; 1 is all."""
    top_k: int = attrs.field(default=0, validator=at_least(0))
    """Tokens are drawn from that many of the most likely ones; 0 is all."""
    seed: int = 0
    """Seeds the choice of tasks, the worlds and the sampling."""

    def __attrs_post_init__(self) -> None:
        if not self.temperatures:
            raise ValueError("temperatures must hold at least one, such as [0.0]")
        if min(self.temperatures) < 0:
            raise ValueError(f"temperatures must not be negative, got {min(self.temperatures)}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if len(set(self.temperatures)) < len(self.temperatures):
            raise ValueError("temperatures must differ from each other")
        if not (self.every or self.at_start or self.at_end):
            raise ValueError("nothing would be evaluated: set every, at_start or at_end")
