"""One player: answers, rewards, endings, the expert."""

import asyncio
import functools
import inspect

import pytest

from agentgym_core.types import Task
from agentgym_sciworld import phrases
from agentgym_sciworld.environment import SciWorld
from agentgym_sciworld.session import to_command

ANIMAL = SciWorld().task("sciworld_find-animal_0")
"""Begins in the hallway, whose doors are closed."""


def with_session(**options):
    """Run a test that is given a session and is a coroutine."""

    def decorate(test):
        @functools.wraps(test)
        def run(**arguments):
            async def body():
                session = await SciWorld(**options).open()
                try:
                    await test(session=session, **arguments)
                finally:
                    await session.close()

            asyncio.run(body())

        signature = inspect.signature(test)  # without `session`: it is no fixture
        others = [value for name, value in signature.parameters.items() if name != "session"]
        run.__signature__ = signature.replace(parameters=others)
        return run

    return decorate


async def play(session, task, actions):
    return [await session.reset(task, 0), *[await session.step(action) for action in actions]]


@with_session()
async def test_an_opening(session):
    observation = await session.reset(ANIMAL, 0)
    description, blank, *look = observation.text.split("\n")
    assert description.startswith("Your task is to find a(n) animal.")
    assert blank == ""
    assert look[0] == "This room is called the hallway. In it, you see: "
    assert "\tA door to the kitchen (that is closed)" in look
    state = {"task": "find-animal", "variation": 0, "score": 0}
    assert observation.info == {**state, "task_description": description}
    assert (await session.step("inventory")).info == state


@with_session()
async def test_rewards_are_what_the_score_gains(session):
    """The simulator's scores after each action: 8, 25, 25 of 100."""
    actions = ["open door to kitchen", "go to kitchen", "look around"]
    observations = await play(session, ANIMAL, actions)
    assert [o.info["score"] for o in observations] == [0, 8, 25, 25]
    assert [o.reward for o in observations] == [0.0, 0.08, 0.17, 0.0]
    assert not any(o.terminated or o.truncated or o.success for o in observations)


@with_session()
async def test_what_a_task_begins_with_is_paid_with_the_first_action(session):
    """This one begins in the room where its parts are, which is worth 7 of 100."""
    task = SciWorld().task("sciworld_power-component_15")
    opening, first, second = await play(session, task, ["look around", "look around"])
    assert opening.info["score"] == first.info["score"] == 7
    assert (opening.reward, first.reward, second.reward) == (0.0, 0.07, 0.0)


@with_session()
async def test_a_failed_task_ends_without_a_reward(session):
    *_, before, last = await play(session, ANIMAL, ["open door to kitchen", "focus on agent"])
    assert before.reward == 0.08
    assert (last.reward, last.terminated, last.success) == (0.0, True, False)
    assert last.info["score"] == -100
    with pytest.raises(RuntimeError, match="has ended"):
        await session.step("look around")
    assert await session.available_actions() == ()
    assert await session.expert_action() is None


@with_session()
async def test_an_ambiguous_action_is_answered_by_a_number(session):
    _, asked = await play(session, ANIMAL, ["open door"])
    assert asked.text.startswith("Ambiguous request: Please enter the number")
    assert "\n0:\topen door between kitchen and hallway" in asked.text
    assert await session.available_actions() == ("0", "1", "2", "3", "4", "5")
    assert (await session.step("0")).text == "The door is now open."
    assert "kitchen (that is open)" in (await session.step("look around")).text


@pytest.mark.parametrize(
    "action", ["reset task", "Reset  THE\ttask", "\x00reset\u202etask\n", "reset a task"]
)
@with_session(max_steps=3)
async def test_the_task_cannot_be_reset(session, action):
    *_, opened, refused = await play(session, ANIMAL, ["open door to kitchen", action])
    assert refused.text == phrases.NO_RESET
    assert refused.info == opened.info
    assert refused.reward == 0.0
    assert not refused.truncated
    assert (await session.step(action)).truncated, "it counts as a step"


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("Look  Around\n", "look around"),
        ("\tgo to\x07kitchen", "go to kitchen"),
        ("\ud800", ""),
        ("Öffne 🙂", "öffne 🙂"),
    ],
)
def test_commands(action, command):
    assert to_command(action) == command


@with_session(max_steps=2)
async def test_the_step_limit(session):
    _, first, last = await play(session, ANIMAL, ["look around", "open door to kitchen"])
    assert not first.truncated
    assert (last.truncated, last.terminated, last.success) == (True, False, False)
    assert last.text == f"The door is now open.\n{phrases.NO_MORE_STEPS}"
    assert last.reward == 0.08, "what the last step earns is paid"
    with pytest.raises(RuntimeError, match="has ended"):
        await session.step("look around")


@with_session(max_steps=6)
async def test_an_end_at_the_limit_is_the_worlds_own(session):
    task = SciWorld().task("sciworld_lifespan-longest-lived_0")
    observation = await session.reset(task, 0)
    number = 0
    while (action := await session.expert_action()) is not None:
        observation = await session.step(action)
        number += 1
    assert number <= 6
    assert (observation.terminated, observation.truncated) == (True, False)
    assert observation.success


@with_session()
async def test_the_list_of_actions_changes_nothing(session):
    """Naming things draws random numbers, on which mixing parents' genes depends too."""
    task = SciWorld().task("sciworld_grow-plant_0")
    await session.reset(task, 0)
    simulator = session.simulator()
    state = simulator._random_field.get(simulator._random)
    actions = await session.available_actions()
    assert simulator._random_field.get(simulator._random) == state
    assert "open door to kitchen" in actions
    assert "reset task" not in actions
    assert len(set(actions)) > 100


@with_session()
async def test_the_expert_says_the_same_until_its_action_is_taken(session):
    await session.reset(ANIMAL, 0)
    first = await session.expert_action()
    assert await session.expert_action() == first
    await session.step("inventory")
    assert await session.expert_action() == first, "it goes on where it was"
    await session.step(f"  {first.upper()} ")
    assert await session.expert_action() != first


@with_session()
async def test_an_expert_that_is_asked_late_finds_the_world_as_it_was(session):
    *_, last = await play(session, ANIMAL, ["open door to kitchen", "go to kitchen"])
    await session.expert_action()
    look = await session.step("look around")
    assert look.text.startswith("This room is called the kitchen.")
    assert look.info == last.info


@with_session()
async def test_the_expert_succeeds_where_mistakes_do_not_matter(session):
    observation = await session.reset(ANIMAL, 0)
    total, number = 0.0, 0
    while not observation.terminated:
        await session.step("zzz" if number % 2 else "look around")
        observation = await session.step(await session.expert_action())
        total += observation.reward
        number += 1
    assert observation.success
    assert total == pytest.approx(1.0)


@with_session(simplifications=("openDoors", "teleportAction"))
async def test_simplifications(session):
    observation = await session.reset(ANIMAL, 0)
    assert "kitchen (that is open)" in observation.text
    assert "foundry" in (await session.step("teleport to foundry")).text


@with_session()
async def test_what_is_no_task(session):
    with pytest.raises(ValueError, match="names no variation"):
        await session.reset(Task(id="sciworld_9999"), 0)
    with pytest.raises(RuntimeError, match="no task is under way"):
        await session.step("look around")
