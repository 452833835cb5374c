"""What the player sees, from where it stands and looks, and the ways through it.

Places are (ahead, right): steps ahead of the player and to its right, which is negative to its
left. Headings count quarter turns to the right from where the player looks.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

import attrs

Place = tuple[int, int]
Move = Literal["left", "right", "forward", "pickup", "drop", "toggle", "done"]
"""The simulator's own actions. `left` and `right` turn, `done` only waits."""
Stance = tuple[Place, int]
"""Where one stands, and the heading."""

HERE: Stance = ((0, 0), 0)
_AHEAD: tuple[Place, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))


@attrs.frozen(kw_only=True)
class Thing:
    """Something that a player sees and can name."""

    kind: str
    """`ball`, `box`, `key` or `door`."""
    color: str
    place: Place
    state: str = ""
    """Of a door: `open`, `closed` or `locked`."""
    number: int = 1
    """Counts things of this kind and colour, nearest first."""

    @property
    def name(self) -> str:
        """Such as "red ball"."""
        return f"{self.color} {self.kind}"

    @property
    def label(self) -> str:
        """Such as "red ball 1"."""
        return f"{self.name} {self.number}"

    @property
    def can_be_entered(self) -> bool:
        """Only an open door can."""
        return self.state == "open"


def in_front(stance: Stance) -> Place:
    """The place that one faces."""
    (ahead, right), heading = stance
    step = _AHEAD[heading]
    return (ahead + step[0], right + step[1])


def numbered(things: Iterable[Thing]) -> tuple[Thing, ...]:
    """The things from near to far, then from left to right, with their numbers."""
    counts: Counter[str] = Counter()
    result: list[Thing] = []
    for thing in sorted(things, key=_distance):
        counts[thing.name] += 1
        result.append(attrs.evolve(thing, number=counts[thing.name]))
    return tuple(result)


def _distance(thing: Thing) -> tuple[int, int, int]:
    ahead, right = thing.place
    return (ahead + abs(right), ahead, right)


@attrs.frozen(kw_only=True)
class View:
    """The field before a player."""

    things: tuple[Thing, ...]
    floor: frozenset[Place]
    """Places that one sees to be empty, without the player's own."""
    walls: frozenset[Place]
    carried: str | None
    """The name of what the player carries, such as "red ball"."""

    @cached_property
    def by_place(self) -> Mapping[Place, Thing]:
        """What stands where."""
        return {thing.place: thing for thing in self.things}

    def can_be_entered(self, place: Place) -> bool:
        """Whether one sees that the place is free to walk on."""
        thing = self.by_place.get(place)
        return place in self.floor if thing is None else thing.can_be_entered

    def facing(self) -> Thing | None:
        """The thing right before the player."""
        return self.by_place.get(in_front(HERE))

    def free_steps(self, side: Place) -> int:
        """How far one could walk to that side, such as (0, -1) for the left."""
        steps = 0
        while self.can_be_entered(((steps + 1) * side[0], (steps + 1) * side[1])):
            steps += 1
        return steps

    def way_to(self, place: Place) -> tuple[Move, ...] | None:
        """Shortest moves after which one faces the place; None if no way to it is seen."""
        return self._ways.get(place)

    @cached_property
    def _ways(self) -> Mapping[Place, tuple[Move, ...]]:
        ways: dict[Place, tuple[Move, ...]] = {}
        reached: dict[Stance, tuple[Move, ...]] = {HERE: ()}
        waiting = deque([HERE])
        while waiting:
            stance = waiting.popleft()
            place, heading = stance
            ahead = in_front(stance)
            ways.setdefault(ahead, reached[stance])
            following: list[tuple[Move, Stance]] = [
                ("left", (place, (heading - 1) % 4)),
                ("right", (place, (heading + 1) % 4)),
            ]
            if self.can_be_entered(ahead) or ahead == HERE[0]:
                following.append(("forward", (ahead, heading)))
            for move, after in following:
                if after not in reached:
                    reached[after] = (*reached[stance], move)
                    waiting.append(after)
        return ways
