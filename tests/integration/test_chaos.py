"""Many sessions while everything around them breaks: no reward is lost, made up or paid twice."""

import asyncio
import contextlib
import random
import subprocess
import sys
import time
from collections import Counter

import attrs
import httpx
import psutil

from agentgym_core.agents.act import Act
from agentgym_core.expert import ExpertPolicy
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.serving.client import RemoteEnvironment
from agentgym_core.serving.host import HostSettings
from agentgym_core.testing.proxy import bad_line
from agentgym_core.testing.servers import lasting_port
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Ending, Sampling

LONGEST, BLOCKED = 16, 13
SESSIONS = 64
SERVER = f"""
import sys
import uvicorn
from agentgym_core.serving.server import ServerSettings, make_app
from agentgym_core.testing.worlds import Countdown

world = Countdown(longest={LONGEST}, fault="block", only={BLOCKED}, place="process")
settings = ServerSettings(workers=8, max_sessions=48, call_seconds=2.0)
app = make_app(world, "countdown", settings)
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1)
"""


class Server:
    """One of the two, always at the same port."""

    def __init__(self):
        self.port = lasting_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(self.port)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{self.address}/health", trust_env=False)
                return
            time.sleep(0.1)
        raise AssertionError("the server did not come up")

    def workers(self):
        """Of its supervisors' children."""
        with contextlib.suppress(psutil.Error):
            supervisors = psutil.Process(self.process.pid).children()
            return [child for each in supervisors for child in each.children()]
        return []

    def kill(self):
        self.process.kill()
        self.process.wait()


@attrs.frozen(kw_only=True)
class Thoughtful(Act):
    """Takes the time that a model would, so that things break in the middle of episodes."""

    async def play(self, task, session, handler):
        async def slow_reply():
            await asyncio.sleep(0.03)
            return await reply()

        reply, handler.reply = handler.reply, slow_reply
        await super().play(task, session, handler)


async def play(environment, places, num):
    table = Table(
        environments={"countdown": environment},
        places=places,
        agent=Thoughtful(),
        policy=ExpertPolicy(),
        max_retries=6,
        max_call_seconds=30.0,
    )
    tasks = environment.tasks("train")
    orders = [
        Attempts(
            environment="countdown",
            task=tasks[i % len(tasks)],
            num=1,
            max_rounds=100,
            sampling=Sampling(),
            seed=i,
        )
        for i in range(num)
    ]
    return await play_groups(table, orders, SESSIONS)


async def breaking(servers, draw, done):
    """Kill a worker every now and then, and once a whole server, which comes back."""
    start, restarted, killed = time.monotonic(), False, 0
    while not done.is_set():
        await asyncio.sleep(1.0)
        workers = [worker for server in servers for worker in server.workers()]
        if workers:
            with contextlib.suppress(psutil.Error):
                draw.choice(workers).kill()
                killed += 1
        if not restarted and time.monotonic() - start > 2:
            servers[0].kill()
            await asyncio.sleep(1.5)
            await asyncio.to_thread(servers[0].start)
            restarted = True
    assert restarted, "the episodes were over too soon"
    assert killed >= 5
    return killed


async def in_chaos(servers, lines):
    environment = RemoteEnvironment(use="countdown", env_addr=lines)
    done = asyncio.Event()
    chaos = asyncio.create_task(breaking(servers, random.Random(1), done))
    async with environment.place(HostSettings(), 10.0) as place:
        groups = await play(environment, {"countdown": place}, 2 * SESSIONS)
        done.set()
        await chaos
    return groups


def num_sessions(server):
    return httpx.get(f"{server.address}/health", trust_env=False).json()["sessions"]


def transcript(group):
    (episode,) = group.episodes
    return (
        [message.text for message in episode.messages],
        [(turn.action, turn.observation, turn.reward) for turn in episode.turns],
        episode.ending,
        episode.success,
    )


def test_chaos():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    servers = [Server(), Server()]
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
        lines = [
            stack.enter_context(bad_line(server.address, lost=0.02, seed=number))
            for number, server in enumerate(servers)
        ]
        groups = asyncio.run(in_chaos(servers, lines))
        left = sum(num_sessions(server) for server in servers)
        assert left <= 8, "few sessions are left to be collected"
        children = psutil.Process().children(recursive=True)
        started = [child for child in children if child.pid not in before]
        assert len(started) >= 2, "the servers, with the workers that are left of them"
    undisturbed = asyncio.run(play(Countdown(longest=LONGEST), {}, LONGEST))
    right = {group.task.id: transcript(group) for group in undisturbed}

    blocked = f"countdown_{BLOCKED}"
    endings = Counter()
    for group in groups:
        for episode in group.failures:
            endings[episode.ending] += 1
            assert episode.ending is Ending.ENVIRONMENT_FAILED
            assert episode.error
            assert not episode.success
        if group.episodes:
            assert group.task.id != blocked
            assert transcript(group) == right[group.task.id], "a step was lost, or applied twice"
            endings[Ending.DONE] += 1
        elif group.task.id != blocked:
            endings["dropped"] += 1
    assert sum(len(group.episodes) + len(group.failures) for group in groups) == len(groups)
    assert endings[Ending.DONE] + endings[Ending.ENVIRONMENT_FAILED] == len(groups)
    assert endings["dropped"] <= 0.05 * len(groups), endings
    retried = [e.failed_tries for group in groups for e in group.episodes if e.failed_tries]
    assert retried, "nothing went wrong at all"

    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    left = {child.pid for child in psutil.Process().children(recursive=True)}
    assert left <= before, "no process is left"
