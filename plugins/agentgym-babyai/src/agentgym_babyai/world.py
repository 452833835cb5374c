"""One level of minigrid under way."""

from collections.abc import Iterator
from typing import Any

import attrs
import gymnasium
import minigrid  # noqa: F401  registers the levels
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.envs.babyai.core.verifier import AfterInstr, BeforeInstr, OpenInstr

from agentgym_babyai.levels import Level
from agentgym_babyai.view import Move, Place, Thing, View, numbered


def _say_nothing(*words: object) -> None:
    del words


# Its generator prints every layout that it rejects.
roomgrid_level.__dict__["print"] = _say_nothing


@attrs.frozen
class Outcome:
    """What a move led to."""

    reward: float
    terminated: bool
    truncated: bool

    @property
    def over(self) -> bool:
        """Whether nothing can follow."""
        return self.terminated or self.truncated


class InOrder(BeforeInstr):
    """Two instructions, the second of which is judged only from the next action on.

    Minigrid's own shows the action that fulfils the first to the second as well. Where that is
    strict about doors, it fails by it, and the mission could not be won.
    """

    def verify(self, action: Any) -> str:
        """Minigrid's verdict: `success`, `failure` or `continue`."""
        if self.a_done == "success":
            return super().verify(action)
        self.a_done = self.instr_a.verify(action)
        return "failure" if self.a_done == "failure" else "continue"


def _mended(instruction: Any) -> Any:
    if isinstance(instruction, BeforeInstr):
        first, second = instruction.instr_a, instruction.instr_b
    elif isinstance(instruction, AfterInstr):
        first, second = instruction.instr_b, instruction.instr_a
    else:
        return instruction
    if isinstance(second, OpenInstr) and second.strict:
        return InOrder(first, second)
    return instruction


class World:
    """A level that is played. Everything random in it comes from the seed."""

    def __init__(self, level: Level, seed: int) -> None:
        self.simulator: Any = gymnasium.make(_id(level), disable_env_checker=True).unwrapped
        self.simulator.reset(seed=seed)
        mended = _mended(self.simulator.instrs)
        if mended is not self.simulator.instrs:
            mended.reset_verifier(self.simulator)
            self.simulator.instrs = mended

    @property
    def mission(self) -> str:
        """What is to be done, in the simulator's words."""
        return self.simulator.mission

    @property
    def num_moves(self) -> int:
        """Moves that were taken."""
        return self.simulator.step_count

    @property
    def max_moves(self) -> int:
        """The level's own limit of moves."""
        return int(self.simulator.max_steps)

    def move(self, move: Move) -> Outcome:
        """Take one of the simulator's own actions."""
        action = self.simulator.actions[move]
        _, reward, terminated, truncated, _ = self.simulator.step(action)
        return Outcome(float(reward), bool(terminated), bool(truncated) and not terminated)

    def view(self) -> View:
        """What is seen now."""
        things: list[Thing] = []
        floor: set[Place] = set()
        walls: set[Place] = set()
        for place, found in self._visible():
            if found is None:
                floor.add(place)
            elif found.type == "wall":
                walls.add(place)
            else:
                state = door_state(found) if found.type == "door" else ""
                things.append(Thing(kind=found.type, color=found.color, place=place, state=state))
        carried = self.simulator.carrying
        return View(
            things=numbered(things),
            floor=frozenset(floor),
            walls=frozenset(walls),
            carried=f"{carried.color} {carried.type}" if carried else None,
        )

    def _visible(self) -> Iterator[tuple[Place, Any]]:
        """Places that are seen, and what is there, without the player's own."""
        grid, seen = self.simulator.gen_obs_grid()
        middle, bottom = grid.width // 2, grid.height - 1
        for column in range(grid.width):
            for row in range(grid.height):
                place = (bottom - row, column - middle)
                if seen[column, row] and place != (0, 0):
                    yield place, grid.get(column, row)


def door_state(door: Any) -> str:
    """`open`, `closed` or `locked`."""
    return "locked" if door.is_locked else "open" if door.is_open else "closed"


def _id(level: Level) -> str:
    """Minigrid's name of the level, in the version that is installed."""
    for version in ("v0", "v1"):
        name = f"BabyAI-{level.name}-{version}"
        if name in gymnasium.registry:
            return name
    raise RuntimeError(
        f"minigrid has no level BabyAI-{level.name}: install the version that this package asks "
        "for, with pip install --upgrade agentgym-babyai"
    )
