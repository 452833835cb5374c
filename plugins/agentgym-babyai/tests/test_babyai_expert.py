"""The expert: by hand in small rooms, in every level, and after mistakes."""

import asyncio
import random

import pytest
from minigrid.envs.babyai.core.verifier import (
    BeforeInstr,
    GoToInstr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from agentgym_babyai.environment import BabyAI
from agentgym_babyai.levels import LEVELS
from agentgym_babyai.tasks import UNWINNABLE, make_task
from agentgym_babyai.world import World
from agentgym_core.types import Task

ROOM = ("#######", "#B...K#", "#.....#", "#..^..#", "#######")
DOORS = ("#####", "#..B#", "##{}##", "#b^K#", "#####")


def doors(letter):
    return tuple(row.format(letter) for row in DOORS)


def pick_up_ball():
    return PickupInstr(ObjDesc("ball", "red"))


def open_door():
    return OpenInstr(ObjDesc("door", "red"))


async def expert_episode(session, most=60):
    actions = []
    while len(actions) < most:
        actions.append(await session.expert_action())
        observation = await session.step(actions[-1])
        if observation.terminated or observation.truncated:
            return actions, observation
    return actions, observation


@pytest.mark.parametrize(
    ("mission", "rows", "actions"),
    [
        (pick_up_ball, ROOM, ["pick up red ball 1"]),
        (open_door, doors("D"), ["toggle"]),
        (open_door, doors("O"), ["toggle", "toggle"]),  # it has to be opened
        (open_door, doors("L"), ["pick up red key 1", "go to red door 1", "toggle"]),
        # the key is in the box
        (
            open_door,
            ("#####", "#...#", "##L##", "#.^Y#", "#####"),
            ["go to blue box 1", "toggle", "pick up red key 1", "go to red door 1", "toggle"],
        ),
        # facing it already
        (lambda: GoToInstr(ObjDesc("door", "red")), doors("D"), ["go to red door 1"]),
    ],
)
def test_the_expert_by_hand(scene, mission, rows, actions):
    async def run():
        return await expert_episode(await scene(*rows, mission=mission))

    found, last = asyncio.run(run())
    assert (found, last.success) == (actions, True)


def test_the_expert_carries_things_round_each_other(scene):
    def put_next():
        return PutNextInstr(ObjDesc("ball", "red"), ObjDesc("key", "red"))

    async def run():
        # a corridor: the blue ball is in the way, and there is one niche for it
        rows = ("########", "#B.^.bK#", "###.####", "########")
        return await expert_episode(await scene(*rows, mission=put_next))

    actions, last = asyncio.run(run())
    assert last.success
    assert len(actions) < 30


def test_a_plan_ends_where_the_player_leaves_it(scene):
    def put_next():
        return PutNextInstr(ObjDesc("ball", "red"), ObjDesc("key", "red"))

    async def run():
        session = await scene(*ROOM, mission=put_next)
        assert await session.expert_action() == "pick up red ball 1"
        await session.step("pick up red key 1")
        assert await session.expert_action() == "drop"
        assert (await expert_episode(session))[1].success

    asyncio.run(run())


def test_what_is_carried_too_early_is_picked_up_once_more(scene):
    def first_the_key():
        return BeforeInstr(GoToInstr(ObjDesc("key", "red")), pick_up_ball())

    async def run():
        session = await scene(*ROOM, mission=first_the_key)
        await session.step("pick up red ball 1")
        return await expert_episode(session)

    actions, last = asyncio.run(run())
    assert last.success
    assert actions[-2:] == ["drop", "pick up red ball 1"]


def test_where_a_wrong_thing_loses_the_expert_opens_boxes(scene):
    def strictly():
        return PickupInstr(ObjDesc("ball", "red"), strict=True)

    async def run(*rows):
        return await expert_episode(await scene(*rows, mission=strictly, max_moves=20))

    actions, last = asyncio.run(run("#####", "#B.##", "#X###", "#^.##", "#####"))
    assert (actions, last.success) == (["toggle", "pick up red ball 1"], True)
    actions, last = asyncio.run(run("#####", "#B.##", "#b###", "#^.##", "#####"))
    assert last.truncated  # it looks on: no way leads there
    assert set(actions) == {"turn left"}


def test_two_doors_in_order_can_be_won(play):
    """Minigrid's own verdict is failure as soon as the first one opens."""

    def in_order():
        return BeforeInstr(
            OpenInstr(ObjDesc("door", "red"), strict=True),
            OpenInstr(ObjDesc("door", "blue"), strict=True),
        )

    last = play(["toggle"], *doors("D"), mission=in_order)[-1]
    assert (last.terminated, last.success) == (True, False)  # as it would be

    async def run(task_id):
        session = await BabyAI().open()
        opening = await session.reset(Task(id=task_id), 0)
        actions, last = await expert_episode(session)
        return opening.info["mission"], actions.count("toggle"), last.success

    mission, toggles, success = asyncio.run(run("babyai_15"))
    assert mission == "open the purple door after you open the red door"
    assert (toggles, success) == (2, True)


def test_the_expert_solves_every_level():
    async def run():
        session = await BabyAI().open()
        for level in LEVELS:
            for seed in (0, 1):
                observation = await session.reset(make_task(level, seed), 0)
                limit = observation.info["max_moves"]
                actions, last = await expert_episode(session, most=200)
                assert last.success, f"{level.name} with seed {seed}"
                assert len(actions) <= last.info["moves"] <= limit

    asyncio.run(run())


def test_the_expert_recovers():
    """After what a careless player does: in half of the cases not what it says."""
    levels = [
        level for level in LEVELS if not level.name.endswith("Debug")
    ]  # where errors are lost

    async def run():
        session = await BabyAI(prompt="short").open()
        won = 0
        for number, level in enumerate(levels):
            chance = random.Random(number)
            observation = await session.reset(make_task(level, 2), 0)
            for _ in range(12):
                action = await session.expert_action()
                if chance.random() < 0.5:
                    choices = [a for a in await session.available_actions() if a != "toggle"]
                    action = chance.choice(["sing", *choices])
                observation = await session.step(action)
                if observation.terminated or observation.truncated:
                    break
            else:
                _, observation = await expert_episode(session, most=200)
            won += observation.success
        return won

    # Small rooms may be over before that: their limits are a few dozen moves.
    assert asyncio.run(run()) >= len(levels) - 3


@pytest.mark.parametrize(
    ("level", "seed"), [(level, seed) for level in UNWINNABLE for seed in UNWINNABLE[level]]
)
def test_what_cannot_be_won(level, seed):
    """The only key to the locked door lies in the room behind it, where the mission leads too."""
    world = World(next(found for found in LEVELS if found.name == level), seed)
    simulator = world.simulator
    rooms = [room for row in simulator.room_grid for room in row]
    things = [thing for thing in simulator.grid.grid if thing is not None]
    (locked,) = [thing for thing in things if thing.type == "door" and thing.is_locked]
    key_rooms = {
        id(simulator.room_from_pos(*thing.cur_pos))
        for thing in things
        if (thing.type, thing.color) == ("key", locked.color)
    }
    (locked_room,) = [room for room in rooms if room.locked]
    assert key_rooms == {id(locked_room)}
