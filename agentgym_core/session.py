"""The metered session: what an agent gets of a world.

It counts rounds, reads the action out of each reply, and records what the world answered. No agent
can overrun a horizon, lose a reward or turn a failure into one.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from agentgym_core.actions import parsed
from agentgym_core.contract import check_observation, is_fault
from agentgym_core.errors import (
    EnvironmentFailure,
    EpisodeEnded,
    EpisodeFailure,
    FormatError,
    InvalidReward,
)
from agentgym_core.protocols import Environment, Session
from agentgym_core.types import Ending, Observation, Reply, Round, Task
from agentgym_core.watchdog import Progress
from agentgym_core.wording import origin, shown

T = TypeVar("T")


class EpisodeSession:
    """`protocols.MeteredSession` over one open session, for one episode."""

    def __init__(
        self,
        session: Session,
        environment: Environment,
        task: Task,
        *,
        seed: int,
        max_rounds: int,
        max_call_seconds: float = 300.0,
        progress: Progress | None = None,
    ) -> None:
        self.environment = environment
        self.task = task
        self.seed = seed
        self.max_rounds = max_rounds
        self.rounds: list[Round] = []
        self.ending: Ending | None = None
        self.attempt = 1
        self.progress = progress or Progress()
        self._session = session
        self._max_call_seconds = max_call_seconds
        self._begun = False
        self._has_acted = False  # in this attempt
        self._verdicts = [False]
        self._ended_before: Ending | None = None

    @property
    def ended(self) -> bool:
        """Whether the episode is over, for whatever reason."""
        return self.ending is not None

    @property
    def rounds_left(self) -> int:
        """Actions that may still be taken."""
        return 0 if self.ended else self.max_rounds - len(self.rounds)

    @property
    def verdicts(self) -> tuple[bool, ...]:
        """The environment's, on the first attempt and each further one in which it was acted."""
        num = len(self._verdicts) - (self.attempt > 1 and not self._has_acted)
        return tuple(self._verdicts[:num])

    @property
    def may_try_again(self) -> bool:
        """See `protocols.MeteredSession`."""
        over = self.ending in (Ending.DONE, Ending.STEP_LIMIT)
        left = len(self.rounds) < self.max_rounds
        return over and left and self._has_acted and not self._verdicts[-1]

    def end(self, ending: Ending) -> None:
        """End the episode; the first ending stands.

        One that ends between two attempts ends as the first of them did.
        """
        if self.ending is None:
            idle = self._ended_before is not None and not self._has_acted
            self.ending = self._ended_before if idle else ending

    def stop(self) -> None:
        """The agent gives up or is content."""
        self.end(Ending.AGENT_STOPPED)

    async def reset(self) -> Observation:
        """Begin the episode's task.

        Raises:
            RuntimeError: the episode has begun.
        """
        if self._begun:
            raise RuntimeError(
                "the episode has begun. `session.again()` tries its task once more, after an "
                "attempt that failed"
            )
        self._begun = True
        return self._see(await self._call("reset", self.task, self.seed))

    async def again(self) -> Observation:
        """Begin the task anew, with the rounds that are left.

        Raises:
            EpisodeEnded: not `may_try_again`.
        """
        if not self.may_try_again:
            raise EpisodeEnded("nothing is to be tried again: check `session.may_try_again` before")
        self._ended_before, self.ending = self.ending, None
        self.attempt += 1
        self._has_acted = False
        self._verdicts.append(False)
        return self._see(await self._call("reset", self.task, self.seed))

    async def act(self, reply: Reply, action: str | None = None) -> Observation:
        """Spend one round on the reply's action.

        A reply that names none, or several, or was cut before its end, costs the round as well; the
        policy is told why, and the world does not move.

        Raises:
            EpisodeEnded: there is no round left to spend.
        """
        if self.ended:
            raise EpisodeEnded("the episode is over: check `session.ended` before acting")
        problem = ""
        if action is None:
            action, problem = await self._read(reply)
        self._has_acted = True
        if action is None:
            observation = Observation(messages=problem)
        else:
            observation = self._see(await self._call("step", action))
        self.rounds.append(
            Round(
                turn=reply.turn,
                attempt=self.attempt,
                action=action,
                observation=observation,
                format_error=action is None,
            )
        )
        if len(self.rounds) >= self.max_rounds:
            self.end(Ending.OUT_OF_ROUNDS)
        return observation

    async def available_actions(self) -> Sequence[str]:
        """See `Session.available_actions`."""
        return await self._call("available_actions")

    async def expert_action(self) -> str | None:
        """See `Session.expert_action`."""
        action = await self._call("expert_action")
        if action is not None and not isinstance(action, str):
            raise EnvironmentFailure(
                f"{origin(self.environment)}: expert_action returned {shown(action)}, "
                "expected a text, or None"
            )
        return action

    async def _read(self, reply: Reply) -> tuple[str | None, str]:
        if reply.finish_reason == "length":
            return None, "Your reply was cut off because it was too long. Reply more briefly."
        try:
            return await parsed(self.environment.action_format, reply.text), ""
        except FormatError as error:
            return None, str(error)
        except BaseException as error:  # the environment's fault, not the agent's
            if not is_fault(error):
                raise
            raise EnvironmentFailure(
                f"{origin(self.environment)}: action_format: {type(error).__name__}: {error}"
            ) from error

    def _see(self, answer: Observation) -> Observation:
        observation = check_observation(self.environment, answer)
        parts = {"reward": observation.reward, **observation.rewards}
        for name, value in parts.items():
            if not math.isfinite(value):
                raise InvalidReward(
                    f"{origin(self.environment)}, task {self.task.id}: {name} is {value}"
                )
        self._verdicts[-1] = bool(observation.success)
        if observation.terminated:
            self.end(Ending.DONE)
        elif observation.truncated:
            self.end(Ending.STEP_LIMIT)
        return observation

    async def _call(self, name: str, *arguments: Any) -> Any:
        try:
            with self.progress.waiting(f"{type(self.environment).__name__}.{name}", self.task.id):
                call = getattr(self._session, name)
                return await within(self._max_call_seconds, name, call, *arguments)
        except EpisodeFailure:
            raise
        except BaseException as error:
            if not is_fault(error):
                raise
            raise EnvironmentFailure(
                f"{origin(self.environment)}: {type(error).__name__}: {error}"
            ) from error


async def within(
    seconds: float,
    name: str,
    call: Callable[..., Awaitable[T]],
    *args: Any,
    limit: str = "limits.max_call_seconds",
) -> T:
    """Await a call of an environment, but no longer than that; `limit` is the key that says so.

    A call that blocks the thread cannot be cut short.

    Raises:
        TimeoutError: it took longer, and was cancelled.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await call(*args)
    except TimeoutError:
        if deadline.expired():
            raise TimeoutError(f"it did not answer {name} within {limit}={seconds:g}") from None
        raise
