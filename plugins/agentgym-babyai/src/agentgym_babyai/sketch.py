"""A whole level as the expert knows it, to try things out on, and the ways through it."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from agentgym_babyai.view import Move
from agentgym_babyai.world import World, door_state

Cell = tuple[int, int]
"""Column and row of the level's grid."""
Pose = tuple[Cell, int]
"""Where the player stands, and where it looks: 0 to 3 for right, down, left, up."""

STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
IMPASSABLE = -1
OPENING_COST = 2
"""Moves that opening a door and stepping into it takes."""
BLOCKED_COST = 30
"""Moves that clearing a thing out of the way takes, roughly."""
LOCKED_COST = 100
"""Moves that fetching a key takes, roughly: more than walking around."""


def neighbors(cell: Cell) -> list[Cell]:
    """The four cells around one."""
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS]


def ahead_of(pose: Pose) -> Cell:
    """The cell that is faced."""
    (x, y), heading = pose
    return (x + STEPS[heading][0], y + STEPS[heading][1])


@attrs.define(kw_only=True)
class Sketch:
    """A level that can be changed without playing it."""

    walls: frozenset[Cell]
    things: dict[Cell, Any]
    """The simulator's own things, so that they are the ones that the mission means."""
    doors: dict[Cell, str]
    """`open`, `closed` or `locked`, of the things that are doors."""
    pose: Pose
    carried: Any
    may_carry: bool = True
    """False where picking up a wrong thing loses the mission: only boxes can be cleared then."""

    @classmethod
    def of(cls, world: World) -> "Sketch":
        """The level as it stands."""
        simulator = world.simulator
        walls: set[Cell] = set()
        things: dict[Cell, Any] = {}
        for y in range(simulator.grid.height):
            for x in range(simulator.grid.width):
                found = simulator.grid.get(x, y)
                if found is not None and found.type == "wall":
                    walls.add((x, y))
                elif found is not None:
                    things[x, y] = found
        x, y = map(int, simulator.agent_pos)
        return cls(
            walls=frozenset(walls),
            things=things,
            doors={cell: door_state(t) for cell, t in things.items() if t.type == "door"},
            pose=((x, y), int(simulator.agent_dir)),
            carried=simulator.carrying,
        )

    def is_floor(self, cell: Cell) -> bool:
        """Whether nothing is there but perhaps the player."""
        return cell not in self.walls and cell not in self.things

    def has_key(self, door: Any) -> bool:
        """Whether the carried thing unlocks a door."""
        return self.carried is not None and (self.carried.type, self.carried.color) == (
            "key",
            door.color,
        )

    def entry_cost(self, cell: Cell) -> int:
        """Moves that stepping there takes, with what has to be done first; or `IMPASSABLE`."""
        if cell in self.walls:
            return IMPASSABLE
        thing, state = self.things.get(cell), self.doors.get(cell)
        if thing is None:
            return 1
        if state is None:
            return BLOCKED_COST if self.may_carry or thing.type == "box" else IMPASSABLE
        if state == "locked":
            return OPENING_COST if self.has_key(self.things[cell]) else LOCKED_COST
        return 1 if state == "open" else OPENING_COST

    def is_open_way(self, cell: Cell) -> bool:
        """Whether one can step there at once, or after opening a door."""
        return self.entry_cost(cell) in (1, OPENING_COST)

    def after(self, moves: Iterable[Move]) -> Pose:
        """Where turns and steps would lead. Doors are taken to open when they are toggled."""
        pose = self.pose
        opened: set[Cell] = set()
        for move in moves:
            cell, heading = pose
            ahead = ahead_of(pose)
            if move == "left":
                pose = (cell, (heading - 1) % 4)
            elif move == "right":
                pose = (cell, (heading + 1) % 4)
            elif move == "toggle":
                opened.add(ahead)
            elif move == "forward" and (ahead in opened or self.entry_cost(ahead) == 1):
                pose = (ahead, heading)
        return pose

    def distances(self, cell: Cell) -> Mapping[Pose, int]:
        """Moves to facing a cell, over open ways only, from the player's pose and all nearer."""
        starts = [(tuple_sub(cell, STEPS[heading]), heading) for heading in range(4)]
        found: dict[Pose, int] = {}
        waiting = [(0, pose) for pose in starts if self._can_stand(pose[0])]
        while waiting:
            cost, pose = heapq.heappop(waiting)
            if pose in found:
                continue
            found[pose] = cost
            if pose == self.pose:
                break
            place, heading = pose
            for turned in ((heading - 1) % 4, (heading + 1) % 4):
                heapq.heappush(waiting, (cost + 1, (place, turned)))
            behind = tuple_sub(place, STEPS[heading])
            if self._can_stand(behind):
                heapq.heappush(waiting, (cost + self.entry_cost(place), (behind, heading)))
        return found

    def routes(self) -> Iterator[tuple[int, Pose, Mapping[Pose, Pose]]]:
        """Poses from near to far, with the cost to get there and the pose before each.

        Ways lead through things and locked doors too, at the cost of clearing or unlocking them.
        """
        before: dict[Pose, Pose] = {}
        done: set[Pose] = set()
        waiting = [(0, self.pose, self.pose)]
        while waiting:
            cost, pose, last = heapq.heappop(waiting)
            if pose in done:
                continue
            done.add(pose)
            before[pose] = last
            yield cost, pose, before
            place, heading = pose
            for turned in ((heading - 1) % 4, (heading + 1) % 4):
                heapq.heappush(waiting, (cost + 1, (place, turned), pose))
            ahead = ahead_of(pose)
            step = 1 if ahead == self.pose[0] else self.entry_cost(ahead)
            if step != IMPASSABLE:
                heapq.heappush(waiting, (cost + step, (ahead, heading), pose))

    def route(self, wanted: Callable[[Cell], int | None]) -> "Route | None":
        """The cheapest way to face a wanted cell.

        Args:
            wanted: What facing the cell costs beside getting there; None if it will not do.
        """
        best: Route | None = None
        for cost, pose, before in self.routes():
            if best is not None and cost >= best.cost:
                break
            more = wanted(ahead_of(pose))
            if more is not None and (best is None or cost + more < best.cost):
                best = Route(cost=cost + more, end=pose, cells=self._cells(pose, before))
        return best

    def _cells(self, end: Pose, before: Mapping[Pose, Pose]) -> tuple[Cell, ...]:
        entered: dict[Cell, None] = {}
        pose = end
        while pose != self.pose:
            entered[pose[0]] = None
            pose = before[pose]
        entered.pop(self.pose[0], None)
        return (*reversed(entered), ahead_of(end))

    def _can_stand(self, cell: Cell) -> bool:
        return cell == self.pose[0] or self.is_open_way(cell)


@attrs.frozen
class Route:
    """A way to a cell that one will face at its end."""

    cost: int
    end: Pose
    cells: tuple[Cell, ...]
    """Those that are entered, in order; the last is the one that is faced."""

    @property
    def goal(self) -> Cell:
        """The cell that is faced at the end."""
        return self.cells[-1]


def tuple_sub(cell: Cell, step: Cell) -> Cell:
    """The cell that such a step leads from."""
    return (cell[0] - step[0], cell[1] - step[1])
