"""The client: what it refuses, how it spreads sessions, what it does when nobody answers."""

import asyncio
import pickle
import time

import attrs
import pytest

from agentgym_core.errors import ConfigError, EnvironmentFailure, FormatError
from agentgym_core.serving.client import RemoteEnvironment
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.servers import ServerLost, SessionRefused
from agentgym_core.testing.proxy import bad_line
from agentgym_core.testing.servers import lasting_port, served
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Task

ONE = Task(id="countdown_1", data={"number": 1})


def remote(*addresses, **options):
    return RemoteEnvironment(use="countdown", env_addr=addresses, options=options)


def place(environment, call_seconds=10.0):
    return environment.place(HostSettings(), call_seconds)


@pytest.fixture(scope="module")
def address():
    with served(Countdown(longest=6)) as found:
        yield found


def test_everything_but_the_sessions_is_the_servers(address):
    there, here = remote(address), Countdown(longest=6)
    assert there.tasks("train") == tuple(here.tasks("train"))
    assert there.instructions() == here.instructions()
    assert there.action_format == here.action_format
    assert list(there.corpus()) == list(here.corpus())
    assert there.splits == ("train", "test")


def test_another_environment_is_refused_before_anything_is_played(address):
    other = attrs.evolve(remote(address), use="textcraft")
    with pytest.raises(ConfigError, match=f"env_addr: {address} serves countdown, and textcraft"):
        other.tasks("train")

    async def opens():
        async with place(other):
            pass

    with pytest.raises(ConfigError, match="serves countdown, and textcraft is wanted"):
        asyncio.run(opens())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longest": 5}, "with longest=6, and 5 is wanted"),
        ({"longst": 6}, "has no key 'longst'. It has: longest, "),
    ],
)
def test_other_options_are_refused(address, options, message):
    with pytest.raises(ConfigError, match=message):
        remote(address, **options).tasks("train")


def test_its_own_options_may_be_said(address):
    assert len(remote(address, longest=6, fault="").tasks("train")) == 6


def test_options_may_be_lists(textcraft_server):
    options = {"depths": [1, 2], "num_goals": 20}
    there = RemoteEnvironment(use="textcraft", env_addr=[textcraft_server], options=options)
    assert there.tasks("test")
    assert pickle.loads(pickle.dumps(there)) == there
    other = attrs.evolve(there, options={"depths": [1, 3]})
    with pytest.raises(ConfigError, match=r"with depths=\[1, 2\], and \[1, 3\] is wanted"):
        other.tasks("test")


def test_another_protocol_is_refused(monkeypatch):
    monkeypatch.setattr("agentgym_core.serving.protocol.PROTOCOL", 9)
    with served(Countdown()) as address:
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="speaks protocol 9, and this version 1: install one"):
            remote(address).tasks("train")


def test_nobody_there():
    nobody = f"http://127.0.0.1:{lasting_port()}"
    with pytest.raises(ServerLost, match=f"no server of env_addr answers: {nobody}: ConnectError"):
        remote(nobody).tasks("train")


def test_what_is_no_server_of_ours(tmp_path):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>hello</html>"})

    from agentgym_core.testing.servers import served_app

    with (
        served_app(app) as address,
        pytest.raises(ServerLost, match="answered 200: '<html>hello</html>'"),
    ):
        remote(address).tasks("train")


def test_sessions_are_spread_over_the_servers():
    async def spread(*addresses):
        async with place(remote(*addresses)) as opens:
            sessions = await asyncio.gather(*(opens.open() for _ in range(10)))
            counts = [server.num_sessions for server in opens._servers.servers]
            for session in sessions:
                await session.close()
            return counts, [server.num_sessions for server in opens._servers.servers]

    with served(Countdown()) as one, served(Countdown()) as other:
        assert asyncio.run(spread(one, other)) == ([5, 5], [0, 0])


def test_a_lost_server_is_left_out_and_taken_back():
    port = lasting_port()
    gone = f"http://127.0.0.1:{port}"

    async def number_there(opens):
        sessions = await asyncio.gather(*(opens.open() for _ in range(4)))
        count = opens._servers.servers[0].num_sessions
        for session in sessions:
            await session.close()
        return count

    async def comes_back(there):
        async with place(remote(gone, there)) as opens:
            assert await number_there(opens) == 0
            with served(Countdown(), port=port):
                deadline = time.monotonic() + 10
                while not await number_there(opens):
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.1)
            lost = await number_there(opens)
            assert lost == 0

    with served(Countdown()) as there:
        asyncio.run(comes_back(there))


def test_a_server_that_serves_something_else_after_a_restart_is_left_out():
    port = lasting_port()

    async def changed():
        with served(Countdown(), port=port) as address:
            opens = await place(remote(address)).__aenter__()
            session = await opens.open()
            await session.reset(ONE, 0)
        with served(Countdown(), name="textcraft", port=port):
            with pytest.raises(SessionRefused, match="no session has this id"):
                await session.step("down")
            opens._servers.servers[0].lose("restarted")
            with pytest.raises(ServerLost, match="serves textcraft, and countdown is wanted"):
                await opens._servers.take(wait_seconds=2.0)
        await opens.__aexit__()

    asyncio.run(changed())


def test_at_a_full_server_callers_wait(monkeypatch):
    monkeypatch.setattr("agentgym_core.serving.sessions.WAIT_SECONDS", 0.1)

    async def waits(address):
        async with place(remote(address)) as opens:
            first = await opens.open()
            second = asyncio.create_task(opens.open())
            await asyncio.sleep(0.5)
            assert not second.done()
            await first.close()
            await (await asyncio.wait_for(second, 5)).close()

    with served(Countdown(), max_sessions=1) as address:
        asyncio.run(waits(address))


def test_answers_that_are_lost_change_nothing(address):
    async def play(environment):
        async with place(environment) as opens:
            seen = []
            for number in range(1, 7):
                session = await opens.open()
                task = Task(id=f"countdown_{number}", data={"number": number})
                seen.append(await session.reset(task, 0))
                while not seen[-1].terminated:
                    seen.append(await session.step(await session.expert_action()))
                await session.close()
            return seen

    undisturbed = asyncio.run(play(remote(address)))
    with bad_line(address, lost=0.15, seed=3) as line:
        assert asyncio.run(play(remote(line))) == undisturbed
    assert [o.reward for o in undisturbed if o.terminated] == [1.0] * 6


def test_a_server_that_dies_in_an_episode_is_a_failure_of_the_environment():
    async def dies():
        with served(Countdown()) as address:
            opens = await place(remote(address)).__aenter__()
            session = await opens.open()
            await session.reset(ONE, 0)
        with pytest.raises(ServerLost, match="does not answer /step"):
            await session.step("down")
        await session.close()
        await opens.__aexit__()

    asyncio.run(dies())


def test_a_failure_there_is_one_here():
    async def fails(address):
        session = await remote(address).open()
        await session.reset(ONE, 0)
        with pytest.raises(EnvironmentFailure, match=r"Countdown .*the line is dead"):
            await session.step("down")
        await session.close()
        with pytest.raises(EnvironmentFailure, match="the session is closed"):
            await session.step("down")

    with served(Countdown(fault="step")) as address:
        asyncio.run(fails(address))


def test_the_token_is_shown(monkeypatch):
    with served(Countdown(), token="sesame") as address:
        with pytest.raises(SessionRefused, match="Authorization"):
            remote(address).tasks("train")
        monkeypatch.setenv("AGENTGYM_TOKEN", "sesame")
        assert len(remote(address).tasks("test")) == 4


@attrs.frozen
class Shouting:
    """A format that no other process knows."""

    def instructions(self, thought):
        return "Shout, and think." if thought else "Shout."

    def parse(self, text):
        if not text.endswith("!"):
            raise FormatError("Shout!")
        return text[:-1]

    def render(self, action, thought=""):
        return f"{thought} {action}!".strip()


@attrs.frozen(kw_only=True)
class Loud(Countdown):
    action_format = Shouting()


def test_a_format_of_its_own_is_asked():
    async def asked(address):
        action_format = remote(address).action_format
        assert action_format.instructions(True) == "Shout, and think."
        with pytest.raises(FormatError, match=r"^Shout!$"):
            await action_format.parse("down")
        return await action_format.parse("down!"), await action_format.render("down", "So:")

    with served(Loud()) as address:
        assert asyncio.run(asked(address)) == ("down", "So: down!")
