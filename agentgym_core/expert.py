"""The environment's own expert in the place of a model.

It speaks through the same agent, session and action format as the policy will, so that imitation
sees the very prompts that reinforcement learning continues with, and evaluation plays the very
same episodes.
"""

import sys

import attrs
import numpy as np

from agentgym_core.actions import rendered
from agentgym_core.handler import Policy, TurnTokens, said
from agentgym_core.protocols import Said
from agentgym_core.session import EpisodeSession
from agentgym_core.types import Completion, Message, Reply, Sampling


@attrs.frozen(kw_only=True)
class Demonstrator:
    """An expert that errs on purpose now and then, and recovers."""

    mistakes: float = attrs.field(
        default=0.0, validator=[attrs.validators.ge(0), attrs.validators.le(1)]
    )
    """Probability that a turn takes a random available action instead of the expert's."""
    learn_mistakes: bool = False
    """Whether imitation learns those turns; otherwise only the recovery from them."""


@attrs.frozen(kw_only=True)
class ExpertPolicy(Policy):
    """Replies with what `Session.expert_action` says."""

    demonstrator: Demonstrator = attrs.field(factory=Demonstrator)

    def begin(
        self, session: EpisodeSession, *, sampling: Sampling, key: str, seed: int
    ) -> "ExpertHandler":
        """A record without tokens. An expert is not sampled: `sampling` has no effect."""
        del sampling, key
        return ExpertHandler(session, self.demonstrator, seed)

    def release(self, key: str) -> None:
        """Nothing is kept."""


class ExpertHandler:
    """`protocols.Handler` whose replies are the expert's.

    An expert knows the next action and nothing to say of it: it has no plan and no reflection. It
    reads no tokens, so that its context is never full.
    """

    def __init__(self, session: EpisodeSession, demonstrator: Demonstrator, seed: int) -> None:
        self.messages: list[Message] = []
        self.turns: list[TurnTokens] = []
        self._session = session
        self._demonstrator = demonstrator
        self._random = np.random.default_rng(seed)

    @property
    def longest_reply(self) -> int:
        """It samples no tokens."""
        return 0

    def add(self, messages: Said) -> None:
        """Append messages."""
        self.messages.extend(said(messages))

    def begin(self, messages: Said) -> None:
        """Nothing: these were said before."""

    def room(self, messages: Said = ()) -> int:
        """Without end."""
        return sys.maxsize

    async def say(self, request: str) -> None:
        """Nothing to say: the request is left out as well."""

    async def reply(self) -> Reply:
        """What the expert would do now, or a mistake.

        Raises:
            LookupError: the environment knows no expert action here.
        """
        action = await self._session.expert_action()
        if action is None:
            raise LookupError(f"there is no expert for task {self._session.task.id}")
        mistake = None
        if self._random.random() < self._demonstrator.mistakes:
            mistake = await self._mistake(action)
        text = await rendered(self._session.environment.action_format, mistake or action)
        loss = mistake is None or self._demonstrator.learn_mistakes
        self.messages.append(Message("assistant", text, loss=loss))
        spoken = Completion(token_ids=(), logprobs=(), finish_reason="stop")
        self.turns.append(
            TurnTokens(
                sequence=0,
                prompt_ids=(),
                completion=spoken,
                text=text,
                attempt=self._session.attempt,
            )
        )
        return Reply(turn=len(self.turns) - 1, text=text, finish_reason="stop")

    def final_ids(self) -> tuple[int, ...]:
        """An expert reads no tokens."""
        return ()

    async def _mistake(self, action: str) -> str | None:
        others = [a for a in await self._session.available_actions() if a != action]
        return others[self._random.integers(len(others))] if others else None
