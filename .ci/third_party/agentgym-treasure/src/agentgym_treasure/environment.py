"""A treasure lies somewhere on a line."""

from collections.abc import Iterable, Sequence

import attrs

from agentgym_core.actions import WholeReply
from agentgym_core.protocols import Environment, Session
from agentgym_core.types import Observation, Task


@attrs.frozen(kw_only=True)
class Treasure(Environment):
    """Walk to the treasure and dig. Reward 1 for digging where it lies."""

    length: int = attrs.field(default=6, validator=attrs.validators.ge(2))
    """Places on the line."""

    action_format = WholeReply()

    def tasks(self, split: str) -> Sequence[Task]:
        """One for each place, the same in every split."""
        del split
        return [Task(id=f"treasure_{n}", data={"place": n}) for n in range(self.length)]

    async def open(self) -> Session:
        """A walk that waits for its reset."""
        return Walk(self.length)

    def instructions(self) -> str:
        """The rules."""
        return "Say left, right or dig."

    def corpus(self) -> Iterable[str]:
        """Every word."""
        yield self.instructions()
        yield self.action_format.instructions(thought=False)
        yield "left right dig cold warm nothing here the treasure what"


class Walk(Session):
    """One search."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._place: int | None = None
        self._treasure = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin at one end or the other, as the seed says."""
        self._treasure = task.data["place"]
        self._place = (self._length - 1) * (seed % 2)
        return self._feel()

    async def step(self, action: str) -> Observation:
        """Walk or dig."""
        if self._place is None:
            raise RuntimeError("no search is under way: reset it first")
        if action == "dig":
            found = self._place == self._treasure
            self._place = None
            text = "the treasure" if found else "nothing here"
            return Observation(messages=text, reward=float(found), terminated=True, success=found)
        if action not in ("left", "right"):
            return Observation(messages="what")
        self._place += 1 if action == "right" else -1
        self._place = min(max(self._place, 0), self._length - 1)
        return self._feel()

    async def expert_action(self) -> str | None:
        """Straight to it."""
        if self._place == self._treasure:
            return "dig"
        return "right" if (self._place or 0) < self._treasure else "left"

    async def available_actions(self) -> Sequence[str]:
        """All three."""
        return ("left", "right", "dig")

    def _feel(self) -> Observation:
        near = self._place is not None and abs(self._place - self._treasure) <= 1
        return Observation(messages="warm" if near else "cold", info={"place": self._place})
