"""What an expert would do for a mission, with the whole level before its eyes."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal

import attrs
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    AndInstr,
    BeforeInstr,
    GoToInstr,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from agentgym_babyai.sketch import LOCKED_COST, Cell, Route, Sketch, neighbors
from agentgym_babyai.world import World

Wanted = Callable[[Cell], int | None]
"""What facing a cell costs beside getting there; None if it will not do."""

_MOST_WAYS = 60
"""Ways that a plan may look for before it is given up."""


@attrs.frozen
class Step:
    """Face a cell and do something there."""

    verb: Literal["face", "pick up", "drop", "toggle"]
    cell: Cell


class NoPlan(Exception):
    """The instruction cannot be fulfilled, or not in a way that the expert thinks of."""


def plan(world: World) -> list[Step]:
    """Steps after which the next part of the mission is fulfilled; none if there are no such.

    A mission of two parts is planned part by part. Where their order is free, the nearer is first.
    """
    best: Planner | None = None
    for instruction in pending(world.simulator.instrs):
        planner = Planner(Sketch.of(world))
        try:
            planner.fulfil(instruction)
        except NoPlan:
            continue
        if best is None or planner.cost < best.cost:
            best = planner
    return best.steps if best else []


def pending(instruction: Any) -> Iterator[Any]:
    """The parts of a mission that are to be fulfilled next, in any order."""
    if isinstance(instruction, AndInstr):
        for part, state in (
            (instruction.instr_a, instruction.a_done),
            (instruction.instr_b, instruction.b_done),
        ):
            if state != "success":
                yield from pending(part)
    elif isinstance(instruction, BeforeInstr):
        first_done = instruction.a_done == "success"
        yield from pending(instruction.instr_b if first_done else instruction.instr_a)
    elif isinstance(instruction, AfterInstr):
        first_done = instruction.b_done == "success"
        yield from pending(instruction.instr_a if first_done else instruction.instr_b)
    else:
        yield instruction


class Planner:
    """Collects steps, and carries them out on a sketch while it does."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.steps: list[Step] = []
        self.cost = 0
        self._ways_left = _MOST_WAYS
        self._locked_out: list[Any] = []  # doors whose keys are being fetched

    def fulfil(self, instruction: Any) -> None:
        """Plan for one instruction.

        Raises:
            NoPlan: there seems to be no way.
        """
        if isinstance(instruction, GoToInstr):
            self._go_to(instruction)
        elif isinstance(instruction, PickupInstr):
            self.sketch.may_carry = not instruction.strict
            self._pick_up(instruction.desc.obj_set)
        elif isinstance(instruction, OpenInstr):
            self._open(instruction.desc.obj_set)
        elif isinstance(instruction, PutNextInstr):
            self._put_next(instruction.desc_move.obj_set, instruction.desc_fixed.obj_set)
        else:
            raise NoPlan

    def _go_to(self, instruction: Any) -> None:
        places = {(int(x), int(y)) for x, y in instruction.desc.obj_poss}
        if not places and self.sketch.carried is not None:  # it is what is carried
            self._put_down()
            return
        self._do("face", self._reach(_one_of(places)))

    def _pick_up(self, wanted: Collection[Any]) -> None:
        if self._carries(wanted):  # it has to be picked up once more
            self._put_down()
        self._fetch(wanted)

    def _open(self, doors: Collection[Any]) -> None:
        sketch = self.sketch

        def cost(cell: Cell) -> int | None:
            if not _is_in(sketch.things.get(cell), doors):
                return None
            locked = sketch.doors[cell] == "locked" and not sketch.has_key(sketch.things[cell])
            return LOCKED_COST if locked else 0

        cell = self._reach(cost)
        if sketch.doors[cell] == "locked":
            self._unlock(cell)
            return
        if sketch.doors[cell] == "open":
            self._do("toggle", cell)
        self._do("toggle", cell)
        sketch.doors[cell] = "open"

    def _put_next(self, movers: Collection[Any], fixed: Collection[Any]) -> None:
        sketch = self.sketch
        if self._carries(fixed) and not self._carries(movers):
            self._put_down()
        if not self._carries(movers):
            self._fetch(movers)
        beside = {
            cell
            for place, thing in sketch.things.items()
            if _is_in(thing, fixed)
            for cell in neighbors(place)
            if cell not in sketch.walls and cell not in sketch.doors
        }

        def cost(cell: Cell) -> int | None:
            if cell not in beside:
                return None
            occupant = sketch.things.get(cell)
            if occupant is None:
                return 0
            return None if _is_in(occupant, fixed) else sketch.entry_cost(cell)

        cell = self._reach(cost)
        if cell in sketch.things:
            self._clear(cell, avoid={*beside})
            cell = self._reach(cost)
        self._drop(cell)

    def _reach(self, wanted: Wanted) -> Cell:
        """Get to face the cheapest wanted cell, clearing and unlocking what is in the way."""
        while True:
            route = self._route(wanted)
            obstacle = self._obstacle(route)
            if obstacle is None:
                self._walk(route)
                return route.goal
            if obstacle in self.sketch.doors:
                self._unlock(obstacle)
            else:
                self._clear(obstacle, avoid=route.cells)

    def _route(self, wanted: Wanted) -> Route:
        self._ways_left -= 1
        route = self.sketch.route(wanted) if self._ways_left >= 0 else None
        if route is None:
            raise NoPlan
        return route

    def _obstacle(self, route: Route) -> Cell | None:
        """The first cell on the way, without the one that is faced, that cannot be entered."""
        return next((c for c in route.cells[:-1] if not self.sketch.is_open_way(c)), None)

    def _walk(self, route: Route) -> None:
        for cell in route.cells[:-1]:
            if cell in self.sketch.doors:
                self.sketch.doors[cell] = "open"
        self.sketch.pose = route.end
        self.cost += route.cost

    def _unlock(self, cell: Cell) -> None:
        """Open a locked door, and carry afterwards what was carried before."""
        sketch, held = self.sketch, self.sketch.carried
        door = sketch.things[cell]
        if any(door is other for other in self._locked_out):
            raise NoPlan  # its key lies behind it
        if not sketch.has_key(door):
            self._locked_out.append(door)
            self._fetch_key(door)
            self._locked_out.remove(door)
        self._reach(_one_of({cell}))
        self._do("toggle", cell)
        sketch.doors[cell] = "open"
        if held is not None and held is not sketch.carried:
            self._put_down()
            self._fetch([held])

    def _fetch_key(self, door: Any) -> None:
        def opens(thing: Any) -> bool:
            return thing is not None and (thing.type, thing.color) == ("key", door.color)

        things = self.sketch.things
        hiding = {c for c, thing in things.items() if opens(getattr(thing, "contains", None))}
        lying = {c for c, thing in things.items() if opens(thing)}
        cell = self._reach(_one_of(lying or hiding))
        if cell in hiding:
            self._do("toggle", cell)
            things[cell] = things[cell].contains
        self._take(cell)

    def _fetch(self, wanted: Collection[Any]) -> None:
        """Get hold of one of these things, the nearest."""
        places = {cell for cell, thing in self.sketch.things.items() if _is_in(thing, wanted)}
        self._take(self._reach(_one_of(places)))

    def _take(self, cell: Cell, avoid: Collection[Cell] = ()) -> None:
        """Pick up what is faced, with empty hands."""
        if self.sketch.carried is not None:
            self._put_down(avoid)
            self._reach(_one_of({cell}))
        self._do("pick up", cell)
        self.sketch.carried = self.sketch.things.pop(cell)

    def _clear(self, cell: Cell, avoid: Collection[Cell]) -> None:
        """Take a thing out of the way, and carry afterwards what was carried before."""
        held = self.sketch.carried
        self._reach(_one_of({cell}))
        if not self.sketch.may_carry:  # a box that is opened is gone
            self._do("toggle", cell)
            self.sketch.things.pop(cell)
            return
        self._take(cell, avoid)
        self._put_down(avoid)
        if held is not None:
            self._fetch([held])

    def _put_down(self, avoid: Collection[Cell] = ()) -> None:
        """Drop what is carried where it disturbs least."""
        sketch = self.sketch
        ladder: tuple[Wanted, ...] = (
            lambda c: 0 if sketch.is_floor(c) and c not in avoid and _is_spare(sketch, c) else None,
            lambda c: 0 if sketch.is_floor(c) and c not in avoid else None,
            lambda c: 0 if sketch.is_floor(c) else None,
        )
        for wanted in ladder:
            route = sketch.route(wanted)
            if route is not None and self._obstacle(route) is None:
                self._walk(route)
                self._drop(route.goal)
                return
        raise NoPlan

    def _drop(self, cell: Cell) -> None:
        self._do("drop", cell)
        self.sketch.things[cell] = self.sketch.carried
        self.sketch.carried = None

    def _do(self, verb: Any, cell: Cell) -> None:
        self.steps.append(Step(verb, cell))
        self.cost += 1

    def _carries(self, things: Collection[Any]) -> bool:
        return self.sketch.carried is not None and _is_in(self.sketch.carried, things)


def _one_of(cells: Collection[Cell]) -> Wanted:
    return lambda cell: 0 if cell in cells else None


def _is_in(thing: Any, things: Collection[Any]) -> bool:
    """Whether it is one of them itself: things that look alike are not the same."""
    return any(thing is other for other in things)


def _is_spare(sketch: Sketch, cell: Cell) -> bool:
    """Whether something may stand there: not before a door, nor between two parts of a room."""
    if any(near in sketch.doors for near in neighbors(cell)):
        return False
    x, y = cell
    around = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
    free = [
        (x + dx, y + dy) not in sketch.walls and (x + dx, y + dy) not in sketch.things
        for dx, dy in around
    ]
    num_gaps = sum(free[place - 1] and not free[place] for place in range(len(free)))
    return num_gaps <= 1
