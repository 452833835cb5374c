"""Games in small rooms drawn by hand: what is said and done, word for word."""

import asyncio

import pytest
from minigrid.envs.babyai.core.verifier import GoToInstr, ObjDesc, PickupInstr

ROOM = ("#######", "#B...K#", "#.....#", "#..^..#", "#######")


def test_a_game_word_for_word(play):
    first, second, third, last = play(["turn left", "move forward", "pick up red ball 1"], *ROOM)
    assert first == (
        "You see:\n"
        "- red ball 1: 2 ahead, 2 left\n"
        "- red key 1: 2 ahead, 2 right\n"
        "Free steps: ahead 2 (wall), left 2 (wall), right 2 (wall).\n"
        "You carry nothing."
    )
    assert second.text == (
        "You turned left.\n\n"
        "You see:\n"
        "- red ball 1: 2 ahead, 2 right\n"
        "Free steps: ahead 2 (wall), left 0 (wall), right 2 (wall).\n"
        "You carry nothing."
    )
    assert third.text == (
        "You moved forward.\n\n"
        "You see:\n"
        "- red ball 1: 1 ahead, 2 right\n"
        "Free steps: ahead 1 (wall), left 0 (wall), right 2 (wall).\n"
        "You carry nothing."
    )
    assert third.info["moves"] == 2
    assert last.text == "The mission is accomplished."
    assert (last.terminated, last.truncated, last.success) == (True, False, True)
    # one step ahead, a turn to the right, one step, and the hand: 2 + 4 of 100 moves
    assert last.info["moves"] == 6
    assert last.reward == pytest.approx(1 - 0.9 * 6 / 100)


def test_the_reward_may_be_the_success(play):
    last = play(["pick up red ball 1"], *ROOM, reward="success")[-1]
    assert (last.reward, last.success) == (1.0, True)


def test_the_short_form_word_for_word(play):
    first, second, last = play(["turn_left", "pickup red ball"], *ROOM, prompt="short")
    assert first == (
        "red ball 1 2 ahead 2 left\nred key 1 2 ahead 2 right\n"
        "ahead 2 wall left 2 wall right 2 wall\ncarry nothing"
    )
    assert second.text == (
        "red ball 1 2 ahead 2 right\nahead 2 wall left 0 wall right 2 wall\ncarry nothing"
    )
    assert last.text == "accomplished"


def test_the_limit_of_moves_truncates(play):
    *_, before, last = play(["turn left", "turn left", "turn left"], *ROOM, max_moves=3)
    assert not before.truncated
    assert (last.text, last.reward) == ("Your time is up: the mission is not accomplished.", 0)
    assert (last.terminated, last.truncated, last.success) == (False, True, False)


def test_the_limit_cuts_a_walk_short(play):
    last = play(["pick up red ball 1"], *ROOM, max_moves=3)[-1]
    assert (last.truncated, last.success, last.info["moves"]) == (True, False, 3)


def test_success_with_the_last_move_is_success(play):
    # forward, forward, left, forward, pickup
    last = play(["pick up red ball 1"], *ROOM, max_moves=5)[-1]
    assert (last.terminated, last.truncated, last.success) == (True, False, True)
    assert last.reward == pytest.approx(0.1)


def test_success_on_the_way_ends_a_walk(play):
    def face_the_key():
        return GoToInstr(ObjDesc("key", "red"))

    # to pick up the ball behind, one passes the key: ahead of it after one step
    last = play(["go to red ball 1"], "#####", "#K.##", "#.B##", "#^.##", "#####",
                mission=face_the_key)[-1]  # fmt: skip
    assert (last.success, last.info["moves"]) == (True, 1)


def test_failure_is_no_success(play):
    def strictly():
        return PickupInstr(ObjDesc("ball", "red"), strict=True)

    last = play(["pick up red key 1"], *ROOM, mission=strictly)[-1]
    assert (last.text, last.reward) == ("The mission has failed.", 0)
    assert (last.terminated, last.truncated, last.success) == (True, False, False)


DOORS = ("#####", "#..B#", "##{}##", "#b^K#", "#####")


def doors(letter):
    return tuple(row.format(letter) for row in DOORS)


@pytest.mark.parametrize(
    ("rows", "actions", "said", "moves"),
    [
        (doors("D"), ["toggle"], "You opened the red door.", 1),
        (doors("O"), ["toggle"], "You closed the red door.", 1),
        (doors("O"), ["go through red door 1"], "You went through the red door.", 2),
        (doors("D"), ["toggle and go through red door"], "You went through the red door.", 3),
        (doors("O"), ["toggle and go through red door"], "You went through the red door.", 2),
        (doors("L"), ["pick up red key 1"], "You picked up the red key.", 2),
        (
            doors("L"),
            ["pick up red key 1", "toggle and go through red door 1"],
            "You went through the red door.",
            6,
        ),
        (
            doors("L"),
            ["pick up red key 1", "turn left", "toggle"],
            "You unlocked and opened the red door.",
            4,
        ),
        (doors("D"), ["go to red door 1"], "You are at the red door already.", 1),
        (doors("D"), ["go to blue ball 1"], "You went to the blue ball.", 1),
        (doors("D"), ["pick up blue ball", "drop"], "You dropped the blue ball.", 3),
        (
            ("####", "#.b#", "##O#", "#.^#", "####"),
            ["go through red door 1"],
            "You stand in the red door. Something behind it is in your way.",
            1,
        ),
        (
            ("###", "#Y#", "#^#", "###"),
            ["toggle"],
            "You opened the blue box. It is gone, and what was in it stands there: a red key.",
            1,
        ),
        (
            ("###", "#X#", "#^#", "###"),
            ["toggle"],
            "You opened the red box. It was empty and is gone.",
            1,
        ),
    ],
)
def test_what_actions_do(play, rows, actions, said, moves):
    last = play(actions, *rows)[-1]
    assert last.text.partition("\n\n")[0] == said
    assert last.info["moves"] == moves


@pytest.mark.parametrize(
    ("rows", "action", "said"),
    [
        (ROOM, "dance", "That is no action."),
        (ROOM, "go to red box 1", "You see no red box 1."),
        (ROOM, "go to red ball 2", "You see no red ball 2."),
        (ROOM, "pick up the red box", "You see no red box."),
        (("#####", "#B.B#", "#.^.#", "#####"), "go to red ball", "You see 2 things called red ba"),
        (ROOM, "drop", "You carry nothing that you could drop."),
        (ROOM, "toggle", "There is nothing right before you to toggle."),
        (("###", "#B#", "#^#", "###"), "toggle", "The red ball 1 cannot be toggled."),
        (("###", "#B#", "#^#", "###"), "move forward", "You cannot move forward: the red ball 1"),
        (("###", "#^#", "###"), "move forward", "You cannot move forward: a wall is in the way."),
        (doors("D"), "move forward", "You cannot move forward: the closed red door 1 is in the"),
        (doors("D"), "pick up red door 1", "A door cannot be picked up."),
        (doors("D"), "go through red door 1", "The red door 1 is closed. Open it first"),
        (doors("D"), "go through blue ball 1", "One goes through doors"),
        (doors("D"), "toggle the blue door", "There is nothing right before you to toggle."),
        (doors("L"), "toggle", "The red door 1 is locked. Carry a red key to open it."),
        (doors("L"), "toggle and go through red door 1", "The red door 1 is locked."),
        (("####", "#B##", "#X##", "#^.#", "####"), "go to red ball 1", "You see no free way to"),
        (ROOM, "check available actions", "You can: turn left, turn right, move forward, go to"),
    ],
)
def test_refusals_say_why_and_change_nothing(scene, rows, action, said):
    async def run():
        session = await scene(*rows)
        world = session._game.world
        before = (session._describe(world), world.num_moves, world.simulator.hash())
        observation = await session.step(action)
        assert observation.text.startswith(said)
        assert (session._describe(world), world.num_moves, world.simulator.hash()) == before
        assert (observation.reward, observation.terminated, observation.truncated) == (0, 0, 0)

    asyncio.run(run())


def test_full_hands_and_no_room(play):
    hands, room = play(
        ["pick up blue ball 1", "pick up red ball 1", "drop"],
        "####", "#b.#", "#^B#", "####",
    )[2:]  # fmt: skip
    assert hands.text == "You carry a blue ball. Drop it first."
    assert room.text.startswith("You dropped the blue ball.")
    last = play(["pick up blue ball 1", "turn left", "drop"], "###", "#b#", "#^#", "###")[-1]
    assert last.text.startswith("You can only drop something on the free floor right before you.")


def test_available_actions_by_hand(scene):
    async def run(*rows, actions=()):
        session = await scene(*rows)
        for action in actions:
            await session.step(action)
        return await session.available_actions()

    assert asyncio.run(run(*doors("D"))) == (
        "turn left", "turn right", "toggle",
        "go to blue ball 1", "pick up blue ball 1",
        "go to red key 1", "pick up red key 1",
        "go to red door 1", "toggle and go through red door 1",
    )  # fmt: skip
    assert asyncio.run(run(*doors("L"), actions=["pick up red key 1"])) == (
        "turn left", "turn right", "move forward", "drop",
        "go to red door 1", "toggle and go through red door 1",
    )  # fmt: skip
    assert asyncio.run(run(*doors("L"), actions=["go to blue ball 1", "turn right"])) == (
        "turn left", "turn right", "go to blue ball 1", "pick up blue ball 1",
        "go to red key 1", "pick up red key 1", "go to red door 1",
    )  # fmt: skip


def test_actions_may_be_listed(play):
    first, second = play(["turn left"], *ROOM, show_actions=True)
    assert first.endswith(
        "You carry nothing.\nYou can: turn left, turn right, move forward, go to red ball 1, "
        "pick up red ball 1, go to red key 1, pick up red key 1."
    )
    assert "\nYou can: turn left, turn right, move forward, go to red ball 1" in second.text


def test_nothing_follows_the_end_or_a_close(scene):
    async def run():
        session = await scene(*ROOM)
        await session.step("pick up red ball 1")
        assert await session.available_actions() == ()
        assert await session.expert_action() is None
        with pytest.raises(RuntimeError, match="the task is over"):
            await session.step("drop")
        await session.close()
        with pytest.raises(RuntimeError, match="no task is under way"):
            await session.step("drop")

    asyncio.run(run())
