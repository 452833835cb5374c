"""The data of a training step, in the order in which it arises.

Task -> Observation -> Request -> Completion -> Reply -> Turn -> Episode -> Group
     -> TokenSequence -> Scores, Advantages -> Row -> Minibatch -> Batch

Everything is frozen. Arrays are one-dimensional numpy over the T tokens of one sequence.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Role = Literal["system", "user", "assistant", "tool"]
Part = Mapping[str, Any]
"""OpenAI-style content part, such as {"type": "text", "text": "You open the door."}"""


def to_parts(content: "str | Sequence[Part]") -> tuple[Part, ...]:
    """A text becomes one text part."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    return tuple(content)


@attrs.frozen
class Message:
    """One message of a conversation.

    Example: Message("user", "You see a locked door.")
    """

    role: Role
    content: tuple[Part, ...] = attrs.field(converter=to_parts)
    loss: bool = attrs.field(default=True, kw_only=True)
    """Whether imitation learns this message. Read for assistant messages only."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part["text"] for part in self.content if part["type"] == "text")


def to_messages(value: "str | Message | Sequence[Message]") -> tuple[Message, ...]:
    """A text becomes one user message; an empty text becomes none."""
    if isinstance(value, str):
        return (Message("user", value),) if value else ()
    if isinstance(value, Message):
        return (value,)
    return tuple(value)


@attrs.frozen(kw_only=True)
class Task:
    """One task of an environment.

    Example: Task(id="textcraft_12", category="depth-2", data={"goal": "oak_planks"})
    """

    id: str
    """Unique and stable in its environment: `<environment>_<integer>` where upstream has one."""
    category: str = ""
    """Evaluation reports success for each category."""
    data: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """What `Session.reset` needs. JSON values only."""


@attrs.frozen(kw_only=True)
class Observation:
    """What the world answers to a reset or a step.

    Example: Observation(messages="Got 2 oak log", reward=0.0)
    """

    messages: tuple[Message, ...] = attrs.field(converter=to_messages)
    reward: float = 0.0
    rewards: Mapping[str, float] = attrs.field(factory=dict[str, float])
    """Named parts of the reward, for metrics. They need not add up to it."""
    terminated: bool = False
    """The world reached an end of its own: nothing would follow."""
    truncated: bool = False
    """The world stopped at its own limit: something would have followed."""
    success: bool = False
    """The environment's verdict so far, apart from the reward."""
    info: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """JSON values for the record. The policy never sees them."""

    @property
    def text(self) -> str:
        """The messages' texts, joined by line breaks."""
        return "\n".join(message.text for message in self.messages)


@attrs.frozen(kw_only=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""


@attrs.frozen(kw_only=True)
class Request:
    """One call of the engine: continue these token ids."""

    token_ids: tuple[int, ...]
    max_tokens: int
    stop_ids: frozenset[int]
    """Sampling ends after any of these; the one that was sampled is part of the completion."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    seed: int = 0
    key: str = ""
    """Requests of one episode share a key, so that the engine can keep what it computed."""


FinishReason = Literal["stop", "length"]


@attrs.frozen(kw_only=True)
class Completion:
    """What the engine sampled.

    Example: Completion(token_ids=(40, 7, 2), logprobs=(-0.1, -1.2, -0.01), finish_reason="stop")
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log-probability of each id at the sampling temperature (greedy: at 1), before top-p
    and top-k."""
    finish_reason: FinishReason
    policy_version: int = 0
    """The published step of the weights that sampled it."""


@attrs.frozen(kw_only=True)
class Reply:
    """What the agent gets of a completion."""

    turn: int
    """Index of the turn that recorded it."""
    text: str
    """What the policy said, without its thinking."""
    finish_reason: FinishReason
    thinking: str = ""
    """What it said between `<think>` and `</think>`, for models that think apart."""


class Ending(enum.Enum):
    """Why an episode ended."""

    DONE = "done"
    """The environment terminated."""
    STEP_LIMIT = "step-limit"
    """The environment's own limit."""
    OUT_OF_ROUNDS = "out-of-rounds"
    """The horizon: `max_rounds` actions were taken."""
    OUT_OF_TOKENS = "out-of-tokens"
    """The next prompt or reply did not fit `limits` or the engine."""
    AGENT_STOPPED = "agent-stopped"
    """The agent ended it."""
    ENVIRONMENT_FAILED = "environment-failed"
    ENGINE_FAILED = "engine-failed"
    AGENT_FAILED = "agent-failed"
    INVALID_REWARD = "invalid-reward"
    CANCELLED = "cancelled"

    @property
    def is_failure(self) -> bool:
        """Not the policy's doing: carries no reward and enters no statistic."""
        return self in _FAILURES

    @property
    def is_truncation(self) -> bool:
        """The world would have gone on: a critic bootstraps here."""
        return self in _TRUNCATIONS


_FAILURES = frozenset(
    {
        Ending.ENVIRONMENT_FAILED,
        Ending.ENGINE_FAILED,
        Ending.AGENT_FAILED,
        Ending.INVALID_REWARD,
        Ending.CANCELLED,
    }
)
_TRUNCATIONS = frozenset({Ending.STEP_LIMIT, Ending.OUT_OF_ROUNDS, Ending.OUT_OF_TOKENS})


@attrs.frozen(kw_only=True)
class Turn:
    """One call of the policy, token by token, and what the world made of it.

    Example (a sequence of two turns, mask 0001100011):
        Turn(sequence=0, prompt_ids=(1, 5, 6), token_ids=(7, 2), logprobs=(-0.2, -0.1), ...)
        Turn(sequence=0, prompt_ids=(8, 9, 4), token_ids=(7, 2), logprobs=(-0.3, -0.1), ...)
    """

    sequence: int
    """Index of the episode's token sequence it extends; a new index is a fresh context."""
    prompt_ids: tuple[int, ...]
    """The ids between the previous turn of the sequence and this one. Never trained."""
    token_ids: tuple[int, ...]
    """The sampled ids, as the engine returned them."""
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: int
    text: str
    trained: bool = True
    action: str | None = None
    """What the environment was given; None if the reply spent no round or named no action."""
    observation: str | None = None
    reward: float = 0.0
    rewards: Mapping[str, float] = attrs.field(factory=dict[str, float])
    rounds: int = 0
    """How many of the episode's `max_rounds` it spent: usually 1; 0 for planning."""
    format_error: bool = False


@attrs.frozen(kw_only=True)
class Episode:
    """One attempt at a task, whole."""

    task: Task
    environment: str
    """The name under which the run composed it."""
    sample: int
    """Its number among the attempts at this task."""
    seed: int
    max_rounds: int
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    ending: Ending
    success: bool
    error: str = ""
    """For failures: the component and its last error."""
    seconds: float = 0.0
    failed_tries: tuple[Ending, ...] = ()
    """Endings of the tries before this one, which failed and were played anew."""

    @property
    def reward(self) -> float:
        """Undiscounted sum of the turns' rewards."""
        return sum(turn.reward for turn in self.turns)

    @property
    def num_rounds(self) -> int:
        """Actions taken, bad ones included."""
        return sum(turn.rounds for turn in self.turns)

    @property
    def num_tokens(self) -> int:
        """Sampled tokens."""
        return sum(len(turn.token_ids) for turn in self.turns)


@attrs.frozen(kw_only=True)
class Group:
    """The attempts at one task in one step."""

    task: Task
    environment: str
    episodes: tuple[Episode, ...]
    failures: tuple[Episode, ...] = ()
    """Attempts that failed for a reason other than the policy, again and again: for the record
    only."""

    @property
    def num_dropped(self) -> int:
        """How many attempts are missing from `episodes`."""
        return len(self.failures)


@attrs.frozen(kw_only=True, eq=False)
class TokenSequence:
    """What the engine saw of one episode in one unbroken context, T tokens.

    Example: token_ids 1 5 6 7 2 8 9 4 7 2, mask 0 0 0 1 1 0 0 0 1 1, rewards 0 … 0 1
    """

    token_ids: IntArray
    mask: BoolArray
    """True where the policy sampled the token and learns from it."""
    logprobs: FloatArray
    """Sampling log-probabilities; 0 where nothing was sampled."""
    rewards: FloatArray
    """Each turn's reward, on its last generated token."""
    turns: IntArray
    """Index of the turn that generated the token; -1 elsewhere."""
    versions: IntArray
    """Policy version that sampled the token; -1 elsewhere."""
    episode: int
    """Number of its episode in the batch; the sequences of one episode share it."""
    group: int
    """Number of its task in the batch; the attempts at one task share it."""
    truncated: bool = False
    """The episode was cut: see `Ending.is_truncation`."""
    task: str = ""
    """Its id, for errors."""

    def __len__(self) -> int:
        return len(self.token_ids)


@attrs.frozen(kw_only=True, eq=False)
class Scores:
    """What the current and the reference policy say of given tokens: per sequence, T values."""

    logprobs: tuple[FloatArray, ...] | None = None
    """Of the policy as it stands before the update, at the sampling temperature."""
    reference_logprobs: tuple[FloatArray, ...] | None = None
    values: tuple[FloatArray, ...] | None = None


@attrs.frozen(kw_only=True, eq=False)
class Advantages:
    """Credit per sequence and token: T values each, 0 where the mask is."""

    values: tuple[FloatArray, ...]
    returns: tuple[FloatArray, ...] | None = None
    """Targets of the value function, where there is one."""
    metrics: Mapping[str, float] = attrs.field(factory=dict[str, float])


@attrs.frozen(kw_only=True, eq=False)
class Row:
    """One sequence as it enters the loss: T values each."""

    token_ids: IntArray
    mask: BoolArray
    weights: FloatArray
    """Share of each token in the loss: the loss is the plain sum of weight x token loss, whatever
    the micro-batch. Adds up to 1 over a whole minibatch for the mean aggregations."""
    advantages: FloatArray
    old_logprobs: FloatArray
    """Of the policy before the step's first update: the denominator of the ratio."""
    sampled_logprobs: FloatArray
    reference_logprobs: FloatArray | None = None
    old_values: FloatArray | None = None
    returns: FloatArray | None = None
    task: str = ""
    """Of the sequence, for errors."""

    def __len__(self) -> int:
        return len(self.token_ids)


@attrs.frozen(kw_only=True, eq=False)
class Minibatch:
    """The rows of one optimizer step."""

    rows: tuple[Row, ...]


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Everything that one training step learns from, in the order of its optimizer steps."""

    step: int
    minibatches: tuple[Minibatch, ...]


@attrs.frozen(kw_only=True, eq=False)
class TokenTensors:
    """A micro-batch of N rows padded to T tokens, as tensors, for `Algorithm.loss`.

    `mask_NT` is boolean. Padding has mask 0 and weight 0. `logprobs_NT[n, t]` is the
    log-probability of token t given the tokens before it, at the sampling temperature; only it
    (and `values_NT`) has a gradient.
    """

    logprobs_NT: Any
    mask_NT: Any
    advantages_NT: Any
    old_logprobs_NT: Any
    sampled_logprobs_NT: Any
    reference_logprobs_NT: Any = None
    values_NT: Any = None
    old_values_NT: Any = None
    returns_NT: Any = None
