"""Java processes: how they are shared and end, and that what they did before does not show."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentgym_sciworld import pool, simulator
from agentgym_sciworld.environment import DEFAULT_JAVA_OPTIONS, SciWorld
from agentgym_sciworld.simulator import Simulator, World

ANIMAL = SciWorld().task("sciworld_find-animal_0")

OPEN_AND_WAIT = """
import asyncio, time
from agentgym_sciworld.environment import SciWorld
session = asyncio.run(SciWorld().open())
print(session.simulator().pid, flush=True)
time.sleep(WAIT)
"""

HISTORY = """
import asyncio, json, sys
from agentgym_sciworld.environment import SciWorld

WALKS = json.loads(sys.argv[1])

async def main():
    world = SciWorld(simplifications=('teleportAction', 'openDoors'))
    session = await world.open()
    for item_id in sys.argv[2:]:  # what was played before
        await session.reset(world.task(item_id), 0)
        await session.available_actions()
        await session.step("wait")
    for item_id, actions in WALKS:
        print(json.dumps((await session.reset(world.task(item_id), 0)).text))
        for action in actions:
            observation = await session.step(action)
            print(json.dumps([observation.text, observation.reward, len(session._game.actions)]))
    await session.close()

asyncio.run(main())
"""
WALKS = [
    # Without `-XX:hashCode=2` paints, planes and birds stand in another order each time.
    [item_id, [f"teleport to {room}", "look around", "wait", "look around"]]
    for item_id, room in (
        ("sciworld_chemistry-mix-paint-secondary-color_3", "art studio"),
        ("sciworld_inclined-plane-friction-unnamed-surfaces_3", "workshop"),
        ("sciworld_identify-life-stages-2_0", "outside"),
    )
]


def has_ended(pid):
    """Whether a process is gone, or a zombie that nobody has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def ends(pid, seconds=5.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if has_ended(pid):
            return True
        time.sleep(0.02)
    return False


def started(wait):
    code = OPEN_AND_WAIT.replace("WAIT", str(wait))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_a_process_that_is_killed(how):
    process, java = started(60)
    assert not has_ended(java)
    process.send_signal(how)
    process.communicate()
    assert ends(java)


def test_it_ends_with_a_process_that_ends():
    process, java = started(0)
    process.communicate()
    assert process.returncode == 0
    assert has_ended(java), "it is stopped, not left to notice"


def test_an_interrupt_does_not_reach_it():
    """Control-C goes to a whole process group; the trainer saves then, and plays to the end."""
    simulator_ = Simulator(None, DEFAULT_JAVA_OPTIONS)
    assert os.getpgid(simulator_.pid) != os.getpgid(0)
    simulator_.stop()
    assert has_ended(simulator_.pid)


def test_sessions_share_one_after_another_and_not_at_once():
    async def body():
        one, other = await SciWorld().open(), await SciWorld().open()
        first, second = one.simulator().pid, other.simulator().pid
        assert first != second
        await one.close()
        third = await SciWorld().open()
        assert third.simulator().pid == first
        await third.close()
        await third.close()
        apart = await SciWorld(java_options=("-Xmx200m",)).open()
        assert apart.simulator().pid not in (first, second), "it is of another kind"
        await apart.close()
        fourth, fifth = await SciWorld().open(), await SciWorld().open()
        assert len({fourth.simulator().pid, fifth.simulator().pid, second}) == 3
        for session in (other, fourth, fifth):
            await session.close()

    asyncio.run(body())


def test_one_that_dies_is_a_clear_error_and_is_replaced():
    async def body():
        session = await SciWorld().open()
        await session.reset(ANIMAL, 0)
        dead = session.simulator().pid
        os.kill(dead, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=rf"\(Java process {dead}\) died \(exit code -9\)"):
            await session.step("look around")
        with pytest.raises(RuntimeError, match="is not running any more"):
            await session.step("look around")
        assert "hallway" in (await session.reset(ANIMAL, 0)).text, "a new one took its place"
        assert session.simulator().pid != dead
        second = session.simulator()
        waiting = second.pid
        await session.close()
        os.kill(waiting, signal.SIGKILL)
        second._process.wait(timeout=5)
        again = await SciWorld().open()
        assert again.simulator().pid != waiting, "one that died in the pool is not lent"
        await again.reset(ANIMAL, 0)
        await again.close()

    asyncio.run(body())


def test_an_error_of_the_simulator_is_not_a_failed_task():
    """It scores both as -100."""
    world = Simulator(None, DEFAULT_JAVA_OPTIONS)
    try:
        world.load(World("find-animal", 0))
        agent = world._interface.agentInterface().get()
        agent.setErrorState("java.lang.NullPointerException")
        with pytest.raises(RuntimeError, match=r"failed: RuntimeError: java\.lang\.NullPointer"):
            world.step("look around")
        assert not world.is_alive
    finally:
        world.stop()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"java": "/no/such/java"}, ValueError, "`java` is '/no/such/java', which is no program"),
        ({"java_options": ("-Xnonsense",)}, RuntimeError, r"does not start: .*-Xnonsense.*`java_o"),
        ({"java": "/bin/false"}, RuntimeError, "/bin/false ended with exit code 1 and said: noth"),
    ],
)
def test_what_does_not_start(options, error, message):
    before = len(pool._all)
    with pytest.raises(error, match=message):
        asyncio.run(SciWorld(**options).open())
    assert len(pool._all) == before


def test_another_java_can_run_it():
    java = simulator.find_java(None)
    session = asyncio.run(SciWorld(java=java).open())
    assert "hallway" in asyncio.run(session.reset(ANIMAL, 0)).text
    asyncio.run(session.close())


def test_nothing_depends_on_what_was_played_before():
    """Nor on PYTHONHASHSEED."""
    seen = set()
    for number, before in enumerate(
        [[], ["sciworld_4136", "sciworld_4200"], ["sciworld_4300", "sciworld_4174"]]
    ):
        done = subprocess.run(
            [sys.executable, "-c", HISTORY, json.dumps(WALKS), *before],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1
    assert "wood cup (containing" in done.stdout
    assert "unknown material" in done.stdout
