"""What is played, what it is worth, and how a run learns from it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import attrs

from agentgym_core.protocols.models import Engine
from agentgym_core.types import (
    Advantages,
    Episode,
    Group,
    Scores,
    Task,
    TokenSequence,
)

State = Any
"""A JSON value: what changes over a run and therefore lies in the checkpoint."""
Need = Literal["logprobs", "reference_logprobs", "values", "final_values"]
"""What an algorithm or estimator asks of `Trainer.score`: fields of `types.Scores`. `final_values`
are asked for beside `values`, by what continues an episode that was cut."""


class AdvantageEstimator(Protocol):
    """Credit for every generated token, over the whole batch, in float64."""

    compares_groups: ClassVar[bool] = False
    """The attempts at one task are held against each other: equal rewards give exactly 0, an
    episode counts once, and `training.group_size` must be 2 at least."""

    @property
    def needs(self) -> frozenset[str]:
        """See `Need`."""
        return frozenset()

    def __call__(self, sequences: Sequence[TokenSequence], scores: Scores) -> Advantages:
        """Return one advantage per token; 0 where the mask is 0."""
        ...


@attrs.frozen(kw_only=True)
class StepReport:
    """What a training step says of itself."""

    step: int
    metrics: Mapping[str, float]
    groups: tuple[Group, ...] = ()
    sequences: tuple[TokenSequence, ...] = ()
    """Of the groups' episodes, where the step made them."""
    advantages: Advantages | None = None
    """One array for each of the sequences, for the record."""


class RoundScheduler(Protocol):
    """How many rounds an episode of a training step may take."""

    def initial_state(self) -> State:
        """State before the first step."""
        return None

    def max_rounds(self, step: int, state: State) -> int:
        """The horizon of step 0, 1, … A pure function."""
        ...

    def next_state(self, state: State, report: StepReport) -> State:
        """State after a step."""
        return state


@attrs.frozen(kw_only=True)
class TaskPool:
    """The training tasks of one environment of the mix."""

    environment: str
    weight: float
    tasks: tuple[Task, ...]


class TaskSampler(Protocol):
    """Which tasks a training step plays."""

    def initial_state(self) -> State:
        """State before the first step."""
        return None

    def select(
        self, pools: Sequence[TaskPool], num_tasks: int, *, step: int, seed: int, state: State
    ) -> Sequence[tuple[TaskPool, Task]]:
        """The tasks of step 0, 1, … A pure function of its arguments."""
        ...

    def next_state(self, state: State, report: StepReport) -> State:
        """State after a step."""
        return state


@attrs.frozen(kw_only=True)
class EpisodeReward:
    """What a reward makes of an episode.

    Example: EpisodeReward(turns=(0.0, 0.9), parts={"brevity": -0.1})
    """

    turns: tuple[float, ...]
    """One for each turn of the episode."""
    parts: Mapping[str, float] = attrs.field(factory=dict[str, float])
    """Named values of the whole episode, for metrics. They need not add up to the reward."""


class Reward(Protocol):
    """What a run makes of a finished episode. The verdict `success` stays the environment's."""

    def __call__(self, episode: Episode) -> EpisodeReward:
        """A pure function of the episode, whose turns carry the environment's own reward."""
        ...


class Algorithm(Protocol):
    """How a run learns."""

    default_advantage: ClassVar[str | None] = None
    """Name of the advantage estimator that goes with it where the run names none. An algorithm that
    has no such name, and is no `OnPolicy`, learns without advantages."""

    @property
    def needs(self) -> frozenset[str]:
        """See `Need`."""
        return frozenset()

    @property
    def learns_from(self) -> tuple[str, ...]:
        """Names of earlier stages of the run whose episodes it learns from."""
        return ()

    def training_temperature(self, sampling_temperature: float) -> float:
        """What the trainer divides logits by; the engine's own unless it learns from text."""
        return sampling_temperature

    def check(self, engine: Engine) -> None:
        """Refuse an engine whose sampling the loss would be wrong for, before anything runs.

        Raises:
            ValueError: names the engine's key and the mend.
        """

    def check_files(self) -> None:
        """Refuse files that are not there, before the stage loads a model.

        Raises:
            ValueError: names the key and the file.
        """

    def initial_state(self) -> State:
        """State before the first step; a step finds it as `run.algorithm_state`."""
        return None

    def next_state(self, state: State, report: StepReport) -> State:
        """State after a step, from what the step says of itself."""
        return state

    async def prepare(self, run: Any) -> Any:
        """Called once before the first step, also after a resume.

        The steps find what it returns in `run.prepared`: demonstrations, say. It depends on the
        configuration and the seed only.
        """
        return None

    async def train_step(self, run: Any, step: int) -> StepReport:
        """One step of training, from tasks to new weights. `run` is an `agentgym_core.run.Run`."""
        ...
