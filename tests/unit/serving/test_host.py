"""Sessions in workers: what dies is restored, what hangs is ended, and nothing is left behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import attrs
import psutil
import pytest

from agentgym_core.errors import ConfigError, EnvironmentFailure
from agentgym_core.serving.host import Host, HostSettings
from agentgym_core.serving.places import place_of
from agentgym_core.serving.process import Blueprint, CallTimeout, WorkerDied
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Task


def task(number):
    return Task(id=f"countdown_{number}", data={"number": number})


def host(call_seconds=20.0, workers=1, fault="", **settings):
    world = Countdown(fault=fault, place="process")
    chosen = HostSettings(workers=workers, **settings)
    return place_of(world, chosen, call_seconds)


def children():
    return psutil.Process().children(recursive=True)


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch):
    monkeypatch.setattr(CountdownSession, "open_sessions", 0)  # some are never closed, on purpose
    before = {child.pid for child in children()}
    yield
    deadline = time.monotonic() + 5
    while {child.pid for child in children()} - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [child for child in children() if child.pid not in before] == []


async def play(session, number, seed=0):
    seen = [await session.reset(task(number), seed)]
    while not seen[-1].terminated:
        seen.append(await session.step(await session.expert_action()))
    return seen


def worker_of(session):
    return session._process.info, session._process.pids[0]


def kill(session):
    process = session._process
    os.kill(process.pids[0], signal.SIGKILL)
    return process


async def settled(process):
    """Until the parent has seen it die."""
    await process._reading


def test_an_episode_in_a_worker_is_the_same_as_here():
    async def both():
        async with host() as workers:
            there = await workers.open()
            here = await Countdown().open()
            return await play(there, 3), await play(here, 3)

    there, here = asyncio.run(both())
    assert there == here
    assert [o.reward for o in there] == [0, 0, 0, 0, 1]
    assert there[-1].success


def test_a_worker_holds_as_many_sessions_as_the_environment_allows():
    async def pids():
        async with host(workers=2) as workers:
            assert workers.capacity == 8
            sessions = await asyncio.gather(*(workers.open() for _ in range(8)))
            return [session._process.pids[0] for session in sessions]

    found = asyncio.run(pids())
    assert sorted(found.count(pid) for pid in set(found)) == [4, 4]


def test_at_capacity_callers_wait_their_turn():
    async def order():
        async with host(sessions_per_worker=1) as workers:
            first = await workers.open()
            waiting = [asyncio.create_task(workers.open()) for _ in range(2)]
            await asyncio.sleep(0.1)
            assert not any(each.done() for each in waiting)
            await first.close()
            second = await asyncio.wait_for(waiting[0], 5)
            assert not waiting[1].done()
            await second.close()
            await (await asyncio.wait_for(waiting[1], 5)).close()

    asyncio.run(order())


def test_a_session_whose_worker_died_is_restored():
    async def killed_after_each_step():
        async with host() as workers:
            session = await workers.open()
            undisturbed = await play(session, 3)
            for place in range(4):
                seen = [await session.reset(task(3), 0)]
                while not seen[-1].terminated:
                    if len(seen) == place + 1:
                        await settled(kill(session))
                    seen.append(await session.step(await session.expert_action()))
                assert seen == undisturbed
            return workers.num_restored

    assert asyncio.run(killed_after_each_step()) == 4


def test_a_worker_that_dies_within_a_call_is_restored_and_the_step_is_applied_once():
    async def stopped_then_killed():
        async with host() as workers:
            session = await workers.open()
            await session.reset(task(3), 0)
            process = session._process
            os.kill(process.pids[0], signal.SIGSTOP)  # so that the step is under way
            step = asyncio.create_task(session.step("down"))
            await asyncio.sleep(0.1)
            os.kill(process.pids[0], signal.SIGKILL)
            return (await step).text, (await session.step("down")).text

    assert asyncio.run(stopped_then_killed()) == ("The number is 2.", "The number is 1.")


def test_an_episode_is_restored_once():
    async def killed_twice():
        async with host() as workers:
            session = await workers.open()
            await session.reset(task(3), 0)
            await settled(kill(session))
            await session.step("down")
            await settled(kill(session))
            with pytest.raises(WorkerDied):
                await session.step("down")
            await session.close()
            again = await workers.open()
            return (await play(again, 1))[-1].success

    assert asyncio.run(killed_twice())


def test_what_looks_otherwise_is_not_taken_for_restored():
    async def moved():
        async with host(fault="pid") as workers:
            session = await workers.open()
            await session.reset(task(3), 0)
            await settled(kill(session))
            with pytest.raises(EnvironmentFailure, match="observation 0 of task countdown_3"):
                await session.step("down")

    asyncio.run(moved())


def test_a_step_that_kills_its_worker_each_time_is_a_failure():
    async def deadly():
        async with host(fault="die") as workers:
            session = await workers.open()
            await session.reset(task(1), 0)
            with pytest.raises(WorkerDied, match="Countdown: its worker died"):
                await session.step("down")

    asyncio.run(deadly())


@pytest.mark.parametrize("fault", ["block", "hang"])
def test_a_hang_ends_its_session_and_the_neighbours_go_on(fault):
    async def neighbours():
        async with host(call_seconds=0.7, fault=fault) as workers:
            hanging, *others = [await workers.open() for _ in range(3)]
            for session in others:
                await session.reset(task(2), 0)
            await hanging.reset(task(1), 0)
            start = time.monotonic()
            step = asyncio.create_task(hanging.step("down"))
            await asyncio.sleep(0.1)
            beside = [asyncio.create_task(session.step("down")) for session in others]
            with pytest.raises(CallTimeout, match=r"did not answer step within 0\.7 s"):
                await step
            assert time.monotonic() - start < 2
            assert [(await each).text for each in beside] == ["The number is 1."] * 2
            await hanging.close()
            assert (await play(await workers.open(), 2))[-1].success

    asyncio.run(neighbours())


def test_a_caller_that_gives_up_leaves_a_worker_that_others_can_use():
    async def given_up():
        async with host(fault="hang", sessions_per_worker=1) as workers:
            session = await workers.open()
            await session.reset(task(1), 0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.step("down"), 0.2)
            await session.close()
            return (await play(await workers.open(), 2))[-1].success

    assert asyncio.run(given_up())


def test_a_failure_of_the_environment_names_it_and_its_package():
    async def failing():
        async with host(fault="step") as workers:
            session = await workers.open()
            await session.reset(task(1), 0)
            with pytest.raises(EnvironmentFailure, match=r"Countdown \(.*\): step: .*the line is"):
                await session.step("down")

    asyncio.run(failing())


def test_nan_comes_over_as_nan():
    async def nan():
        async with host(fault="nan") as workers:
            return (await play(await workers.open(), 1))[-1]

    assert str(asyncio.run(nan()).reward) == "nan"


def test_a_worker_is_replaced_after_so_many_sessions():
    async def pids():
        found = []
        async with host(recycle_after=2, sessions_per_worker=1) as workers:
            for _ in range(5):
                session = await workers.open()
                found.append(session._process.pids[0])
                await session.close()
        return found

    found = asyncio.run(pids())
    assert [found.count(pid) for pid in dict.fromkeys(found)] == [2, 2, 1]


def test_a_worker_above_its_memory_is_replaced():
    async def num_workers():
        async with host(max_memory_mb=1, sessions_per_worker=1) as workers:
            for _ in range(3):
                await (await workers.open()).close()
            return workers.slots[0].num_started

    assert asyncio.run(num_workers()) == 3


def test_options_that_the_worker_refuses_keep_their_path():
    blueprint = Blueprint(
        use="countdown",
        import_string="agentgym_core.testing.worlds:Countdown",
        options={"longst": 3},
        path="environments.1",
    )

    async def refused():
        async with Host(blueprint, sessions_per_worker=1) as workers:
            with pytest.raises(ConfigError, match=r"^environments\.1\.longst: unknown key\. Did"):
                await workers.open()

    asyncio.run(refused())


ORPHANS = """
import asyncio, sys
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.places import place_of
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Task

async def main():
    world = Countdown(fault="block", place="process")
    async with place_of(world, HostSettings(workers=2, sessions_per_worker=1), 600.0) as workers:
        sessions = [await workers.open() for _ in range(2)]
        for session in sessions:
            await session.reset(Task(id="1", data={"number": 1}), 0)
        blocked = asyncio.gather(*(session.step("down") for session in sessions))
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await blocked

asyncio.run(main())
"""


def test_nothing_outlives_a_parent_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    left = psutil.Process(parent.pid).children(recursive=True)
    assert len(left) == 4  # two supervisors and their workers, which are stuck
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs(left, timeout=5)
    assert alive == []


def test_what_a_worker_started_ends_with_it():
    async def grandchild():
        async with host(sessions_per_worker=1) as workers:
            session = await workers.open()
            await session.reset(task(1), 0)
            process = session._process
            supervisor = psutil.Process(process._process.pid)
            assert [child.pid for child in supervisor.children()] == list(process.pids)
            await settled(kill(session))
            with contextlib.suppress(psutil.NoSuchProcess):
                supervisor.wait(timeout=5)
            assert not supervisor.is_running()

    asyncio.run(grandchild())


def test_a_supervisor_that_is_killed_takes_its_worker_along():
    async def killed():
        async with host() as workers:
            session = await workers.open()
            await session.reset(task(3), 0)
            process = session._process
            old = process.pids
            os.kill(process._process.pid, signal.SIGKILL)
            await settled(process)
            assert (await session.step("down")).text == "The number is 2."
            _, alive = psutil.wait_procs(
                [psutil.Process(pid) for pid in old if psutil.pid_exists(pid)], timeout=5
            )
            return alive, workers.num_restored

    assert asyncio.run(killed()) == ([], 1)


def test_sessions_in_threads_do_not_stop_the_loop():
    async def ticks():
        before = threading.active_count()
        world = Countdown(fault="block", block_seconds=1.0, place="thread")
        async with place_of(world, HostSettings(), 1.0) as threads:
            blocked, free = await threads.open(), await threads.open()
            await blocked.reset(task(1), 0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(blocked.step("down"), 0.2)
            with pytest.raises(RuntimeError, match="did not come back"):
                await blocked.step("down")
            await blocked.close()
            success = (await play(free, 2))[-1].success
            await free.close()
            await asyncio.sleep(1.0)
            return success, threading.active_count() - before

    assert asyncio.run(ticks()) == (True, 0)


def test_inline_is_here():
    assert place_of(Countdown(), HostSettings(), 1.0) is None


def test_workers_may_be_asked_for():
    found = place_of(Countdown(), HostSettings(workers=3), 1.0)
    assert (found.capacity, len(found.slots)) == (192, 3)
    assert attrs.asdict(found.settings)["workers"] == 3
