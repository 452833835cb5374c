"""Environments in this process and behind a server, as ratios of one run.

    python benchmarks/environments.py [NAME ...]

A rate is calls (open, reset, step, close) a second of 64 clients at once. The bar is the rate that
would be if a call took what it takes here and what a call of nothing takes over HTTP, one after the
other:

    share = rate behind the server / (1 / (1 / rate here + 1 / rate of nothing over HTTP))

Client and server are two processes; environments that need workers have as many in both cases.
"""

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

from agentgym_core.catalog import Catalog
from agentgym_core.environments import environment_block
from agentgym_core.protocols import Environment
from agentgym_core.serving.client import RemoteEnvironment
from agentgym_core.serving.host import Host, HostSettings
from agentgym_core.serving.places import place_of
from agentgym_core.serving.process import Blueprint
from agentgym_core.testing.servers import serving_script
from agentgym_core.testing.worlds import Nothing
from agentgym_core.types import Task

NUM_CLIENTS = 64
WORKERS = 2
SECONDS = 6.0
NAMES = ("textcraft", "searchqa", "babyai", "sciworld")


@contextlib.asynccontextmanager
async def here(environment: Environment) -> AsyncGenerator[Any]:
    """Where a run without a server opens its sessions."""
    place = place_of(environment, HostSettings(), 300.0)
    if isinstance(place, Host):
        place = place_of(environment, HostSettings(workers=WORKERS), 300.0)
    async with place or contextlib.nullcontext(environment) as opens:
        yield opens


@contextlib.asynccontextmanager
async def behind(environment: Environment, name: str) -> AsyncGenerator[Any]:
    """The same behind a server in a process of its own."""
    workers = WORKERS if environment.runs_in == "process" else None
    with serving_script(Blueprint.of(environment), name, workers=workers) as address:
        remote = RemoteEnvironment(use=name, env_addr=[address])
        async with remote.place(HostSettings(), 300.0) as opens:
            yield opens


async def script(environment: Environment) -> list[tuple[Task, list[str]]]:
    """Episodes to play: tasks, and what their expert does."""
    tasks = list(environment.tasks("test"))
    episodes: list[tuple[Task, list[str]]] = []
    async with here(environment) as opens:
        session = await opens.open()
        for task in tasks[:: max(1, len(tasks) // 8)][:8]:
            actions: list[str] = []
            seen = await session.reset(task, 0)
            while len(actions) < 20 and not (seen.terminated or seen.truncated):
                action = await session.expert_action() or "look"
                actions.append(action)
                seen = await session.step(action)
            episodes.append((task, actions))
        await session.close()
    return episodes


async def rate(opens: Any, episodes: list[tuple[Task, list[str]]]) -> tuple[float, float]:
    """Calls a second of all clients, and the median milliseconds of a step."""
    stop = time.perf_counter() + SECONDS
    calls, steps = 0, list[float]()

    async def client(number: int) -> None:
        nonlocal calls
        while time.perf_counter() < stop:
            session = await opens.open()
            for place in range(4):
                task, actions = episodes[(number + place) % len(episodes)]
                await session.reset(task, 0)
                calls += 1
                for action in actions:
                    start = time.perf_counter()
                    await session.step(action)
                    steps.append(time.perf_counter() - start)
                    calls += 1
            await session.close()
            calls += 2

    start = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(NUM_CLIENTS)))
    seconds = time.perf_counter() - start
    return calls / seconds, 1000 * statistics.median(steps)


async def measure_nothing() -> float:
    """What HTTP itself costs."""
    nothing = Nothing()
    episodes = [(nothing.tasks("test")[0], ["go"] * 20)]
    async with behind(nothing, "nothing") as opens:
        http, _ = await rate(opens, episodes)
        session = await opens.open()
        await session.reset(episodes[0][0], 0)
        took: list[float] = []
        for _ in range(1000):
            start = time.perf_counter()
            await session.step("go")
            took.append(1000 * (time.perf_counter() - start))
        await session.close()
    print(f"nothing over HTTP: {http:.0f} calls/s of {NUM_CLIENTS} clients")
    p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
    print(f"one client: p50 {p50:.2f} ms, p99 {p99:.2f} ms (bar: p50 at most 2 ms)")
    return http


async def measure_resets() -> None:
    """Whether sessions are made side by side."""
    slow = Nothing(reset_seconds=0.1)
    task = slow.tasks("test")[0]

    async def make(opens: Any) -> None:
        session = await opens.open()
        await session.reset(task, 0)

    async with behind(slow, "slow") as opens:
        start = time.perf_counter()
        for _ in range(32):
            await make(opens)
        one_by_one = time.perf_counter() - start
        start = time.perf_counter()
        await asyncio.gather(*(make(opens) for _ in range(32)))
        together = time.perf_counter() - start
    print(
        f"create and reset of 32: {one_by_one:.2f} s one by one, {together:.2f} s at once: ", end=""
    )
    print(f"{one_by_one / together:.1f} times as fast (bar: 8)")


async def measure(name: str, http: float) -> None:
    """One environment."""
    environment = environment_block(name, "environment", Catalog.installed()).component
    episodes = await script(environment)
    async with here(environment) as opens:
        own, own_step = await rate(opens, episodes)
    async with behind(environment, name) as opens:
        served, _ = await rate(opens, episodes)
    bound = 1 / (1 / own + 1 / http)
    print(f"{name:10} {own:7.0f} calls/s here (median step {own_step:.1f} ms), ", end="")
    print(f"{served:6.0f} behind a server, {bound:6.0f} if only HTTP were added: ", end="")
    print(f"share {served / bound:.2f} (bar: 0.80)", flush=True)


async def measure_worker(name: str) -> None:
    """The memory of one worker over 200 resets, with a few steps after each."""
    environment = environment_block(name, "environment", Catalog.installed()).component
    tasks = environment.tasks("test")
    took, memory = list[float](), list[float]()
    async with place_of(environment, HostSettings(workers=1), 300.0) as host:
        session = await host.open()
        for number in range(201):
            await session.reset(tasks[number * 37 % len(tasks)], 0)
            for action in ("look around", "inventory", "open door to hallway", "go to hallway"):
                start = time.perf_counter()
                await session.step(action)
                took.append(1000 * (time.perf_counter() - start))
            if number % 50 == 0:
                memory.append(host.slots[0].process.memory())
        await session.close()
    shown = ", ".join(f"{megabytes:.0f}" for megabytes in memory)
    print(f"{name:10} one worker: step median {statistics.median(took):.1f} ms (bar: 15), ", end="")
    print(f"MB after 0, 50, ... 200 resets: {shown} (bar: 300, and flat)")


async def main() -> None:
    """All of it."""
    http = await measure_nothing()
    await measure_resets()
    for name in sys.argv[1:] or NAMES:
        await measure(name, http)
    for name in sorted({"babyai", "sciworld"} & set(sys.argv[1:] or NAMES)):
        await measure_worker(name)


if __name__ == "__main__":
    asyncio.run(main())
