"""What each kind of component must be able to do.

A component is a frozen, keyword-only attrs class whose fields are its keys in the YAML file. It is
plain data: live things come from its methods `open` and `start`. Subclass the protocol to inherit
the default bodies, which is how methods that are added later stay compatible.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import attrs

from agentgym_core.actions import ActionFormat, ActionLine
from agentgym_core.model import ModelConfig
from agentgym_core.types import (
    Advantages,
    Batch,
    Completion,
    Episode,
    Group,
    Message,
    Observation,
    Reply,
    Request,
    Scores,
    Task,
    TokenSequence,
    TokenTensors,
)

Split = str
"""`train`, `test`, or another name that the environment declares."""
State = Any
"""A JSON value: what changes over a run and therefore lies in the checkpoint."""
Need = Literal["logprobs", "reference_logprobs", "values"]
"""What an algorithm or estimator asks of `Trainer.score`."""


class Session(Protocol):
    """One live world. Sessions of one environment do not see each other."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task. The same task and seed give the same observations, always."""
        ...

    async def step(self, action: str) -> Observation:
        """Take one action; any text is allowed, nonsense is answered in words."""
        ...

    async def close(self) -> None:
        """Free what the session holds. May be called twice."""
        ...

    async def available_actions(self) -> Sequence[str]:
        """Actions that make sense now; empty if the environment does not list them."""
        return ()

    async def expert_action(self) -> str | None:
        """What an expert would do now, from wherever the episode stands; None if unknown."""
        return None


class Environment(Protocol):
    """A world with its tasks, its instructions, its action format and its verdict."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split, always in the same order."""
        ...

    async def open(self) -> Session:
        """A new session, before its first reset."""
        ...

    @property
    def runs_in(self) -> Literal["inline", "thread", "process"]:
        """Where its sessions may run: on the event loop, in a thread, in a process of their own."""
        return "inline"

    def instructions(self) -> str:
        """What the policy is told of the world and its commands, the same for every task."""
        return ""

    @property
    def action_format(self) -> ActionFormat:
        """How a reply names an action."""
        return ActionLine()

    def corpus(self) -> Iterable[str]:
        """Texts that hold every word of the world: the vocabulary of a model from scratch."""
        return ()


class MeteredSession(Protocol):
    """What an agent gets of a session: it counts rounds, enforces limits, keeps the record."""

    environment: Environment

    @property
    def ended(self) -> bool:
        """Whether the episode is over, for whatever reason."""
        ...

    @property
    def rounds_left(self) -> int:
        """Actions that may still be taken."""
        ...

    async def reset(self) -> Observation:
        """Begin the episode's task."""
        ...

    async def act(self, reply: Reply, action: str | None = None) -> Observation:
        """Spend one round on the reply's action (or on `action`, if the agent parsed it itself)."""
        ...

    async def available_actions(self) -> Sequence[str]:
        """See `Session.available_actions`."""
        ...

    def stop(self) -> None:
        """The agent gives up or is content: the episode ends as AGENT_STOPPED."""
        ...


class Handler(Protocol):
    """The token-exact record of one episode, and the agent's only way to the policy."""

    def add(self, messages: Observation | Message | Sequence[Message] | str) -> None:
        """Append messages that the policy will read before its next reply."""
        ...

    async def reply(self) -> Reply:
        """Let the policy speak. Its ids and log-probabilities are recorded as sampled."""
        ...


class Agent(Protocol):
    """The conversation between a policy and a world."""

    async def play(self, task: Task, session: MeteredSession, handler: Handler) -> None:
        """Play one episode; return when `session.ended`, or call `session.stop()` before."""
        ...


@attrs.frozen(kw_only=True)
class StartContext:
    """What a run tells an engine or backend at its start."""

    model: ModelConfig
    """Always with a `path`: a model from scratch was built and saved before."""
    seed: int
    num_steps: int = 0
    """Training steps of this stage: the length of the learning-rate schedule."""
    temperature: float = 1.0
    """Of sampling: training divides logits by it as well."""
    needs: frozenset[str] = frozenset()
    """Everything that `Trainer.score` will be asked for."""


Weights = Iterable[tuple[str, Any]]
"""Parameter names as in the model's `state_dict`, with their tensors."""


class Sampler(Protocol):
    """A started engine."""

    @property
    def max_model_len(self) -> int | None:
        """Most tokens of prompt and completion together; None if unbounded."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Continue the request's ids. Many calls run at once; cancelling one is safe."""
        ...

    async def load(self, weights: Weights, version: int) -> None:
        """Sample from these weights from now on; everything computed before is forgotten."""
        ...

    def release(self, key: str) -> None:
        """No more requests will carry this key."""
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class Engine(Protocol):
    """Where tokens are sampled."""

    @property
    def temperature(self) -> float:
        """Of sampling in training."""
        ...

    @property
    def top_p(self) -> float:
        """Of sampling in training."""
        return 1.0

    @property
    def top_k(self) -> int:
        """Of sampling in training; 0 is off."""
        return 0

    async def start(self, context: StartContext) -> Sampler:
        """Load the model and sample."""
        ...


class Loss(Protocol):
    """`Algorithm.loss`: one value per token, to be weighted and summed by the backend."""

    def __call__(self, tokens: TokenTensors) -> tuple[Any, Mapping[str, Any]]:
        """Return loss_NT, and metrics by name, each an _NT tensor to be averaged over the mask."""
        ...


class Trainer(Protocol):
    """A started backend: the policy, its optimizer and, if needed, reference and critic."""

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """Evaluate given tokens under the weights as they stand; no gradients."""
        ...

    def update(self, batch: Batch, loss: Loss) -> Mapping[str, float]:
        """Take one optimizer step for each minibatch. The same batch gives the same result
        whatever the micro-batch size.

        Raises:
            FloatingPointError: a loss or gradient is not finite; the weights are untouched.
        """
        ...

    def weights(self) -> Weights:
        """The policy's current weights, for `Sampler.load`."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything that `load` needs to go on bit for bit."""
        ...

    def load(self, folder: Path) -> None:
        """Go on where `save` stood."""
        ...

    def export(self, folder: Path) -> None:
        """Write the policy alone, as a folder that transformers loads."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


class Backend(Protocol):
    """Where the policy is trained."""

    def start(self, context: StartContext) -> Trainer:
        """Load the model and its optimizer."""
        ...


class AdvantageEstimator(Protocol):
    """Credit for every generated token, over the whole batch, in float64."""

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
    """Name of the advantage estimator that goes with it where the run names none."""

    @property
    def needs(self) -> frozenset[str]:
        """See `Need`."""
        return frozenset()

    def training_temperature(self, sampling_temperature: float) -> float:
        """What the trainer divides logits by; the engine's own unless it learns from text."""
        return sampling_temperature

    def check(self, engine: Engine) -> None:
        """Refuse an engine whose sampling the loss would be wrong for, before anything runs.

        Raises:
            ValueError: names the engine's key and the mend.
        """

    async def prepare(self, run: Any) -> Any:
        """Called once before the first step, also after a resume.

        The steps find what it returns in `run.prepared`: demonstrations, say. It depends on the
        configuration and the seed only.
        """
        return None

    async def train_step(self, run: Any, step: int) -> StepReport:
        """One step of training, from tasks to new weights. `run` is an `agentgym_core.run.Run`."""
        ...


@attrs.frozen(kw_only=True)
class RunInfo:
    """What a tracker is told of a run."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    """The resolved configuration, as in `config.yaml`."""


class Tracking(Protocol):
    """A started tracker."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of `metrics.jsonl`, which has `stage`, `phase` and `step` among its keys.

        After a resume the steps since the last checkpoint come again.
        """
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


class Tracker(Protocol):
    """Where metrics go beside `metrics.jsonl`."""

    def start(self, run: RunInfo) -> Tracking:
        """Begin, or go on with the run of that folder."""
        ...


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that the core uses."""

    chat_template: Any
    eos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Ids to text."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """Render a conversation as text."""
        ...
