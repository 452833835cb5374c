"""Worlds, and agents that talk with them."""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from agentgym_core.actions import ActionFormat, ActionLine
from agentgym_core.types import (
    Message,
    Observation,
    Reply,
    Round,
    Task,
)

Split = str
"""`train`, `test`, or another name that the environment declares."""


class Session(Protocol):
    """One live world. Sessions of one environment do not see each other."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the task. The same task and seed give the same observations, always."""
        ...

    async def step(self, action: str) -> Observation:
        """Take one action; any text is allowed, nonsense is answered in words.

        Raises:
            RuntimeError: no task is under way, before the first reset or after an end.
        """
        ...

    async def close(self) -> None:
        """Free what the session holds, if it holds anything. May be called twice."""

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

    @property
    def sessions_per_process(self) -> int:
        """How many sessions may share a process, where `runs_in` is "process"."""
        return 1

    @property
    def splits(self) -> Sequence[Split]:
        """What `tasks` may be asked for."""
        return ("train", "test")

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


class Opens(Protocol):
    """Where sessions of an environment are opened: the environment itself, workers, servers."""

    async def open(self) -> Session:
        """A new session, before its first reset."""
        ...


class MeteredSession(Protocol):
    """What an agent gets of a session: it counts rounds, enforces limits, keeps the record."""

    environment: Environment
    attempt: int
    """1, and one more each time the task is tried again."""

    @property
    def rounds(self) -> Sequence[Round]:
        """What was done so far, in all attempts."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the episode is over, for whatever reason."""
        ...

    @property
    def rounds_left(self) -> int:
        """Actions that may still be taken."""
        ...

    async def reset(self) -> Observation:
        """Begin the episode's task; once in an episode.

        Raises:
            RuntimeError: the episode has begun.
        """
        ...

    @property
    def may_try_again(self) -> bool:
        """Whether the world ended this attempt, without success and with rounds left."""
        ...

    async def again(self) -> Observation:
        """Begin the task anew, with the same seed; the rounds that were spent stay spent.

        This uses the environment's verdict, which is an oracle: `Episode.success` stays that of the
        first attempt, and the turns of an attempt that is tried again earn nothing. An attempt
        counts from its first action: an episode that ends before it ends as the attempt before did.

        Raises:
            EpisodeEnded: not `may_try_again`.
        """
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


Said = Observation | Message | Sequence[Message] | str
"""What a policy may be given to read."""


class Handler(Protocol):
    """The token-exact record of one episode, and the agent's only way to the policy."""

    @property
    def longest_reply(self) -> int:
        """Most tokens of one reply."""
        ...

    def add(self, messages: Said) -> None:
        """Append messages that the policy will read before its next reply."""
        ...

    async def reply(self) -> Reply:
        """Let the policy speak. Its ids and log-probabilities are recorded as sampled."""
        ...

    async def say(self, request: str) -> Reply | None:
        """Ask for words that are no action, such as a plan; like any reply, they are trained.

        Returns:
            None where the policy has none to give, and then nothing is asked or recorded: an
            environment's expert knows actions only.
        """
        ...

    def begin(self, messages: Said) -> None:
        """Leave the context: the next reply reads these messages, and what is added after them.

        They are what was said before, whole or in short: the record of the conversation does not
        repeat them, and no token of them is trained. What was added and not yet read is not read.
        """
        ...

    def room(self, messages: Said = ()) -> int:
        """Tokens that the context can still take, once it holds what was added and these messages.

        0 or less: the next reply does not fit, and would end the episode. Nothing is changed.
        """
        ...


class Agent(Protocol):
    """The conversation between a policy and a world."""

    async def play(self, task: Task, session: MeteredSession, handler: Handler) -> None:
        """Play one episode; return when `session.ended`, or call `session.stop()` before."""
        ...
