"""What an engine is asked, and the record of what was played: tokens, turns, episodes, groups."""

import enum
from collections.abc import Mapping
from typing import Literal

import attrs

from agentgym_core.types.worlds import Message, Observation, Task


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


@attrs.frozen(kw_only=True)
class Round:
    """One action and its answer."""

    turn: int
    """Index of the turn whose reply named it."""
    attempt: int
    """1, or more where the task was tried again."""
    action: str | None
    """What the environment was given; None if the reply named no action."""
    observation: Observation
    format_error: bool


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
    attempt: int = 1
    """Which of the episode's attempts it belongs to. What is said between two attempts belongs to
    the later one."""


@attrs.frozen(kw_only=True)
class Episode:
    """One attempt at a task, whole; or several, where an agent tries again after it failed.

    Each turn of an attempt that was tried again has reward 0, so that to fail first is never worth
    more than to succeed at once; what the world paid there stands in `rewards["abandoned"]`.
    """

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
    """The environment's verdict on the first attempt. An agent that tries again does so because it
    was told that it failed, which no policy is told in earnest."""
    error: str = ""
    """For failures: the component and its last error."""
    seconds: float = 0.0
    failed_tries: tuple[Ending, ...] = ()
    """Endings of the tries before this one, which failed and were played anew."""
    final_ids: tuple[int, ...] = ()
    """Of an episode that was cut: what the policy would have read, after its last turn, before its
    next one. A critic values that state; nothing is trained on it."""
    retries: tuple[bool, ...] = ()
    """The verdict on each further attempt, after one that failed; usually there is none."""

    @property
    def success_best(self) -> bool:
        """Whether any of the attempts succeeded: best of n."""
        return self.success or any(self.retries)

    @property
    def num_attempts(self) -> int:
        """Attempts in which an action was taken; at least 1."""
        return 1 + len(self.retries)

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
