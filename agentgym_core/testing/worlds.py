"""A world small enough to be worked out by hand, that can be told to fail; and one of nothing."""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

from agentgym_core.protocols import Environment, Session
from agentgym_core.types import Observation, Task

Fault = Literal["", "open", "reset", "step", "hang", "nan", "close", "block", "die", "pid"]
Place = Literal["inline", "thread", "process"]


@attrs.frozen(kw_only=True)
class Countdown(Environment):
    """Say `down` as often as the task's number, then `lift off`. Reward 1 for the lift-off.

    `lift off` too early ends the episode without success; anything else is answered in words.
    """

    longest: int = 4
    fault: Fault = ""
    """What goes wrong in tasks whose number is odd, or is `only`. `block` stops the thread and
    `die` the process in a step; `pid` lets every process look another way."""
    only: int | None = None
    block_seconds: float = 3600.0
    place: Place = "inline"

    def tasks(self, split: str) -> Sequence[Task]:
        """Numbers 1, …, `longest`, the same in every split."""
        del split
        return [
            Task(id=f"countdown_{n}", category="odd" if n % 2 else "even", data={"number": n})
            for n in range(1, self.longest + 1)
        ]

    async def open(self) -> Session:
        """A countdown before its start."""
        if self.fault == "open":
            raise ConnectionError("no launch pad")
        return CountdownSession(self.fault, self.block_seconds, self.only)

    @property
    def runs_in(self) -> Place:
        """As it is told."""
        return self.place

    @property
    def sessions_per_process(self) -> int:
        """Four."""
        return 4

    def instructions(self) -> str:
        """The rules."""
        return "Count down, then lift off."

    def corpus(self) -> Iterable[str]:
        """Every word."""
        return (
            "Count down, then lift off. Action: Reply with one line and nothing else: one",
            "action The number is 0 1 2 3 4 5 6 7 8 9. Too early. Lift-off! What is that?",
        )


class CountdownSession(Session):
    """One countdown."""

    open_sessions = 0

    def __init__(
        self, fault: Fault, block_seconds: float = 3600.0, only: int | None = None
    ) -> None:
        CountdownSession.open_sessions += 1
        self.number = 0
        self.closed = False
        self.under_way = False
        self._fault: Fault = fault
        self._block_seconds = block_seconds
        self._only = only

    async def reset(self, task: Task, seed: int) -> Observation:
        """Show the number."""
        self.number = task.data["number"]
        wrong = self.number % 2 if self._only is None else self.number == self._only
        if not wrong:
            self._fault = ""
        if self._fault == "reset":
            raise ConnectionError("the pad is on fire")
        self.under_way = True
        info = {"pid": os.getpid()} if self._fault == "pid" else {}
        return Observation(messages=f"The number is {self.number}.", info=info)

    async def step(self, action: str) -> Observation:
        """Count."""
        await asyncio.sleep(0)
        if not self.under_way:
            raise RuntimeError("no countdown is under way: reset it first")
        if self._fault == "step":
            raise ConnectionError("the line is dead")
        if self._fault == "hang":
            await asyncio.Event().wait()
        if self._fault == "block":
            time.sleep(self._block_seconds)  # noqa: ASYNC251, the fault
        if self._fault == "die":
            os._exit(1)
        if action == "lift off":
            self.under_way = False
            done = self.number == 0
            reward = float("nan") if self._fault == "nan" else float(done)
            text = "Lift-off!" if done else "Too early."
            return Observation(messages=text, reward=reward, terminated=True, success=done)
        if action != "down":
            return Observation(messages="What is that?")
        self.number = max(0, self.number - 1)
        return Observation(messages=f"The number is {self.number}.", rewards={"progress": 0.1})

    async def available_actions(self) -> Sequence[str]:
        """Both."""
        return ("down", "lift off")

    async def expert_action(self) -> str | None:
        """Count to the end."""
        return "down" if self.number else "lift off"

    async def close(self) -> None:
        """Count the open sessions, once each."""
        CountdownSession.open_sessions -= not self.closed
        self.closed = True
        if self._fault == "close":
            raise ConnectionError("the pad is stuck")


@attrs.frozen(kw_only=True)
class Nothing(Environment):
    """Answers one word; a reset may wait."""

    reset_seconds: float = 0.0

    def tasks(self, split: str) -> Sequence[Task]:
        """One."""
        return [Task(id="nothing_0")]

    async def open(self) -> Session:
        """A session of nothing."""
        return NothingSession(self.reset_seconds)


class NothingSession(Session):
    """See `Nothing`."""

    def __init__(self, reset_seconds: float) -> None:
        self._reset_seconds = reset_seconds

    async def reset(self, task: Task, seed: int) -> Observation:
        """Wait."""
        if self._reset_seconds:
            await asyncio.sleep(self._reset_seconds)
        return Observation(messages="word")

    async def step(self, action: str) -> Observation:
        """Answer."""
        return Observation(messages="word")
