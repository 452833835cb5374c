"""Small rooms drawn by hand, and games in them."""

import asyncio

import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall
from minigrid.envs.babyai.core.verifier import ObjDesc, PickupInstr

from agentgym_babyai.environment import BabyAI
from agentgym_babyai.expert import Expert
from agentgym_core.types import Task

PLAYERS = {">": 0, "v": 1, "<": 2, "^": 3}
THINGS = {
    "#": Wall,
    "B": lambda: Ball("red"),
    "b": lambda: Ball("blue"),
    "K": lambda: Key("red"),
    "X": lambda: Box("red"),
    "Y": lambda: Box("blue", Key("red")),
    "D": lambda: Door("red"),
    "O": lambda: Door("red", is_open=True),
    "L": lambda: Door("red", is_locked=True),
}


def pick_up_ball():
    return PickupInstr(ObjDesc("ball", "red"))


async def draw(*rows, mission=pick_up_ball, max_moves=100, **options):
    """A session in a room of these rows, seen from above, as if its reset had just been."""
    session = await BabyAI(**options).open()
    await session.reset(Task(id="babyai_4"), 0)
    game = session._game
    simulator = game.world.simulator
    simulator.grid = Grid(len(rows[0]), len(rows))
    simulator.width, simulator.height = len(rows[0]), len(rows)
    simulator.room_size, simulator.num_cols, simulator.num_rows = 99, 1, 1
    simulator.room_grid[0][0].size = (99, 99)
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            if letter in PLAYERS:
                simulator.agent_pos, simulator.agent_dir = (x, y), PLAYERS[letter]
            elif letter != ".":
                simulator.put_obj(THINGS[letter](), x, y)
    simulator.instrs = mission()
    simulator.instrs.reset_verifier(simulator)
    simulator.max_steps = max_moves
    game.expert = Expert(game.world, session.phrases)
    return session


def take(actions, *rows, **options):
    """The observations of these actions, the first being what is seen before them."""

    async def run():
        session = await draw(*rows, **options)
        seen = [session._describe(session._game.world)]
        for action in actions:
            seen.append(await session.step(action))
        return seen

    return asyncio.run(run())


@pytest.fixture(scope="session")
def scene():
    return draw


@pytest.fixture(scope="session")
def play():
    return take
