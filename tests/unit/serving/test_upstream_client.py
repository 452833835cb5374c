"""A client on AgentGym's servers, which are written by hand here from the table of their bodies."""

import asyncio
import contextlib
import re
import socket
from types import ModuleType

import attrs
import pytest
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from agentgym_core import hookimpl
from agentgym_core.actions import ActionLine
from agentgym_core.catalog import Catalog
from agentgym_core.contract import tasks_of
from agentgym_core.environments import environment_block
from agentgym_core.errors import (
    ComponentError,
    ComponentNotFoundError,
    ConfigError,
    EnvironmentFailure,
)
from agentgym_core.protocols import Environment
from agentgym_core.serving.client import RemoteEnvironment
from agentgym_core.serving.dialects import ROWS
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.upstream_client import UpstreamEnvironment
from agentgym_core.testing import EnvironmentConformance
from agentgym_core.testing.servers import served_app, serving
from agentgym_core.types import Task

GREETINGS = {
    "textcraft": "This is environment TextCraft.",
    "babyai": "This is environment BabyAI.",
    "sciworld": "This is environment ScienceWorld.",
    "searchqa": "ok",
    "webarena": "ok",
}


class Fence:
    """A reply is the action between marks."""

    def instructions(self, thought):
        return "Mark it."

    def parse(self, text):
        return text.strip("`")

    def render(self, action, thought=""):
        return f"So: ```{action}```"


@attrs.frozen(kw_only=True)
class Local(Environment):
    """The package here, in place of all five."""

    endless_guesses: bool = False
    name: str = "babyai"

    def tasks(self, split):
        if split == "test":
            return [Task(id=f"{self.name}_find-plant_3")]
        return [Task(id=f"{self.name}_{number}") for number in ("5", "17", "find-plant_3", "5-2")]

    @property
    def action_format(self):
        return {"webarena": Fence()}.get(self.name, ActionLine())

    def instructions(self):
        return "Our own words."

    def corpus(self):
        return ["words"]


class Theirs:
    """One of AgentGym's servers: what was asked of it, and what it answers to each action."""

    def __init__(self, name, answers=()):
        self.name = name
        self.answers = dict(answers)
        self.asked = []
        self.lost = set()
        """Paths whose next answer is lost on the way."""
        self.restart()

    def restart(self):
        self.tasks = {}
        self.created = 0

    @property
    def app(self):
        app = FastAPI()

        @app.get("/")
        def greet():
            greeting = GREETINGS[self.name]
            return PlainTextResponse(greeting) if self.name == "webarena" else greeting

        @app.api_route("/{path}", methods=["GET", "POST"])
        async def answer(path: str, request: Request):
            if path not in ("create", "reset", "step", "observation", "close"):
                return JSONResponse({"detail": "Not Found"}, 404)
            fields = dict(request.query_params)
            if request.method == "POST" and await request.body():
                fields = await request.json()
            self.asked.append((path, fields))
            answer = self.say(path, fields)
            if path in self.lost:
                self.lost.discard(path)
                return JSONResponse("lost", 502)
            if isinstance(answer, Exception):
                return PlainTextResponse("Internal Server Error", 500)
            return JSONResponse(answer)

        return app

    def say(self, path, fields):
        if path == "create":
            self.created += 1
            number = self.created - 1
            self.tasks[number] = None
            if self.name == "textcraft":
                return {"id": number, "observation": "Goal: craft mud.", "done": False, "reward": 0}
            if self.name == "searchqa":
                assert fields == {"id": 0}
                return number
            return {"env_idx" if self.name == "webarena" else "id": number}
        number = int(fields["env_idx" if self.name in ("searchqa", "webarena") else "id"])
        if path == "close":
            return self.tasks.pop(number, None) is not None
        if number not in self.tasks:
            if self.name == "searchqa":
                return IndexError(number)
            return {"error": f"The id {number} is not valid."}
        return getattr(self, path)(number, fields)

    def reset(self, number, fields):
        keys = {"searchqa": "id", "webarena": "idx"}
        task = self.tasks[number] = fields[keys.get(self.name, "data_idx")]
        text, zero = f"Task {task}.", {"reward": 0, "done": False}
        if self.name == "textcraft":
            return {"id": number, "observation": text, **zero}
        if self.name == "babyai":
            return {"observation": text, "score": 0, "deleted": False, **zero}
        if self.name == "sciworld":
            about = {"task_name": "boil", "var_num": 3, "task_description": "Boil water."}
            return {**about, "observation": text, "score": 0, "deleted": False, **zero}
        if self.name == "searchqa":
            return text
        assert fields["seed"] == 0
        return {"observation": "[1] a page", "sites": ["map"], "object": text}

    def observation(self, number, fields):
        return f"Objective: task {self.tasks[number]}. [1] a page"

    def step(self, number, fields):
        if fields["action"] not in self.answers:
            flags = {"terminated": False, "truncated": False, "info": None}
            word = {
                "observation": "Invalid action",
                "reward": 0,
                "score": 0,
                "done": False,
                **flags,
            }
            return word
        return self.answers[fields["action"]]


def catalog(*names):
    @hookimpl
    def register_environments(register):
        for name in names:
            register(name, f"{__name__}:Local")

    module = ModuleType("fakes")
    module.register_environments = register_environments
    return Catalog.of_modules(module)


def block(use, address, **fields):
    fields = {"name": use, **fields}
    return {"use": use, "env_addr": address, **fields}


def environment_of(use, address, **fields):
    found = environment_block(block(use, address, **fields), "environment", catalog(*GREETINGS))
    return found.component


def play(theirs, *actions, task=17, **fields):
    """The observations of an episode at such a server."""

    async def episode(environment):
        session = await environment.open()
        try:
            seen = [await session.reset(Task(id=f"{theirs.name}_{task}"), 0)]
            for action in actions:
                seen.append(await session.step(action))
            return seen
        finally:
            await session.close()

    with served_app(theirs.app) as address:
        return asyncio.run(episode(environment_of(theirs.name, address, **fields)))


def told(observation):
    return (
        observation.reward,
        "terminated" if observation.terminated else "truncated" if observation.truncated else "",
        observation.success,
    )


def craft(text, reward=0, done=False):
    return {"observation": text, "reward": reward, "done": done}


def scored(score, done, reward=0):
    return {"observation": "Something.", "reward": reward, "score": score, "done": done}


def page(reward, terminated, truncated=False, info=()):
    flags = {"reward": reward, "terminated": terminated, "truncated": truncated}
    return {"observation": "[2] another page", "info": dict(info), **flags}


def test_textcraft():
    theirs = Theirs("textcraft", {"get": craft("Got 1 mud"), "craft": craft("Crafted", 1, True)})
    seen = play(theirs, "get", "craft")
    assert [each.text for each in seen] == ["Task 17.", "Got 1 mud", "Crafted"]
    assert [told(each) for each in seen] == [
        (0, "", False), (0, "", False), (1, "terminated", True)
    ]  # fmt: skip
    assert theirs.asked == [
        ("create", {}),
        ("reset", {"id": 0, "data_idx": 17}),
        ("step", {"id": 0, "action": "get"}),
        ("step", {"id": 0, "action": "craft"}),
        ("close", {"id": 0}),
    ]


def test_babyai_ends_with_the_first_reward():
    # 1 - 0.9 * 40 / 64, too little there to be said to be done.
    answers = {"toggle": scored(0, False), "pickup red ball 1": scored(0.4375, False, 0.4375)}
    theirs = Theirs("babyai", answers)
    seen = play(theirs, "toggle", "pick up red ball 1")
    assert [told(each) for each in seen[1:]] == [(0, "", False), (0.4375, "terminated", True)]
    assert theirs.asked[1] == ("reset", {"id": 0, "data_idx": 17})
    assert theirs.asked[-2] == ("step", {"id": 0, "action": "pickup red ball 1"})


def test_babyai_is_done_without_a_reward():
    seen = play(Theirs("babyai", {"toggle": scored(0, True)}), "toggle")
    assert told(seen[-1]) == (0, "terminated", False)


@pytest.mark.parametrize(
    ("last", "what"),
    [
        (scored(100, True, 75), (0.75, "terminated", True)),
        (scored(-100, True, -125), (0, "terminated", False)),
        (scored(25, True), (0, "truncated", False)),
        (scored(33, False, 8), (0.08, "", False)),
    ],
    ids=["all", "spoiled", "limit", "some"],
)
def test_sciworld_counts_what_the_score_gains(last, what):
    theirs = Theirs("sciworld", {"wait": scored(10, False, 10), "look": scored(25, False, 15)})
    theirs.answers["act"] = last
    seen = play(theirs, "wait", "look", "act")
    assert seen[0].text == "Boil water.\nTask 17."
    assert seen[0].info["task_name"] == "boil"
    assert [told(each) for each in seen[1:3]] == [(0.1, "", False), (0.15, "", False)]
    reward, *rest = told(seen[-1])
    assert (pytest.approx(reward), *rest) == what
    assert seen[-1].info == {"score": last["score"]}


def answered(reward, done):
    return {"observation": "Well.", "reward": reward, "done": done, "info": None}


def test_searchqa():
    right = "<answer>1</answer>"
    theirs = Theirs("searchqa", {"Action: <search>a</search>": answered(0, False)})
    theirs.answers[f"Action: {right}"] = answered(1, True)
    seen = play(theirs, "<search>a</search>", right)
    assert [told(each) for each in seen[1:]] == [(0, "", False), (1, "terminated", True)]
    assert theirs.asked[1] == ("reset", {"env_idx": 0, "id": 17})


@pytest.mark.parametrize(("free", "ending"), [(False, "terminated"), (True, "")])
def test_searchqa_ends_with_a_wrong_answer(free, ending):
    wrong = "<answer>2</answer>"
    theirs = Theirs("searchqa", {f"Action: {wrong}": answered(0.1, False)})
    assert told(play(theirs, wrong, endless_guesses=free)[-1]) == (0.1, ending, False)


@pytest.mark.parametrize(
    ("last", "what"),
    [
        (page(1.0, True), (1, "terminated", True)),
        (page(0, True), (0, "terminated", False)),
        (page(0.5, False), (0, "", False)),
        (page(0.5, False, True), (0, "truncated", False)),
    ],
)
def test_webarena(last, what):
    theirs = Theirs("webarena", {"So: ```stop [4]```": last})
    seen = play(theirs, "click", "stop [4]")
    assert seen[0].text == "Objective: task 17. [1] a page"
    assert seen[0].info == {"sites": ["map"], "intent": "Task 17."}
    assert (seen[1].text, told(seen[1])) == ("Invalid action", (0, "", False))
    assert told(seen[2]) == what


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("textcraft", {"error": "The id 0 is not valid."}),
        ("textcraft", {"observation": "Crafted", "reward": "1", "done": True}),
        ("textcraft", {"observation": "Crafted", "done": True}),
        ("sciworld", {"error": "An error occurred while calling o2.step"}),
        ("babyai", {"error": ""}),
        ("searchqa", IndexError("Env 0 not found")),
        ("webarena", {**page(0, False), "info": None, "observation": "Error: Env 0 is dead"}),
        ("webarena", {**page(0, False), "observation": "TimeoutError"}),
    ],
)
def test_an_error_is_a_failure_and_no_reward(name, answer):
    theirs = Theirs(name, {"act": answer, "So: ```act```": answer, "Action: act": answer})
    with pytest.raises(EnvironmentFailure):
        play(theirs, "act")
    assert theirs.asked[-1][0] == "close"


def test_a_task_that_the_server_refuses():
    theirs = Theirs("webarena")
    theirs.reset = lambda *_: {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
    with pytest.raises(EnvironmentFailure, match="TimeoutError"):
        play(theirs)
    with pytest.raises(EnvironmentFailure, match="such as webarena_12"):
        play(theirs, task="x")


@pytest.mark.parametrize("path", ["create", "reset"])
def test_what_may_be_sent_again_is_sent_again(path):
    theirs = Theirs("textcraft", {"craft": craft("Crafted", 1, True)})
    theirs.lost.add(path)
    assert play(theirs, "craft")[-1].success
    assert [asked[0] for asked in theirs.asked].count(path) == 2


def test_a_step_whose_answer_is_lost_is_a_failure_and_is_not_sent_again():
    theirs = Theirs("textcraft", {"craft": craft("Crafted", 1, True)})
    theirs.lost.add("step")
    with pytest.raises(EnvironmentFailure, match="does not answer /step"):
        play(theirs, "craft")
    assert [asked[0] for asked in theirs.asked].count("step") == 1


@contextlib.contextmanager
def place_at(*all_theirs):
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(served_app(theirs.app)) for theirs in all_theirs]
        environment = environment_of(all_theirs[0].name, addresses)
        yield environment.place(HostSettings(), 20.0)


TASK = Task(id="textcraft_5")


def test_a_session_is_kept_for_the_next_episode():
    theirs = Theirs("textcraft", {"get": craft("Got 1 mud")})

    async def episodes(place):
        async with place:
            for _ in range(3):
                session = await place.open()
                await session.reset(TASK, 0)
                await session.step("get")
                await session.close()
                await session.close()
            assert theirs.created == 1
            session, other = await place.open(), await place.open()
            assert theirs.created == 2
            await other.close()
            await session.close()
        assert theirs.tasks == {}

    with place_at(theirs) as place:
        asyncio.run(episodes(place))
    assert [path for path, _ in theirs.asked].count("close") == 2


def test_a_kept_session_that_a_new_start_has_swept_away_is_replaced():
    theirs = Theirs("textcraft", {"get": craft("Got 1 mud")})

    async def episodes(place):
        async with place:
            session = await place.open()
            await session.reset(TASK, 0)
            await session.close()
            theirs.restart()
            session = await place.open()
            assert (await session.reset(TASK, 0)).text == "Task 5."
            assert (await session.step("get")).text == "Got 1 mud"
            await session.close()

    with place_at(theirs) as place:
        asyncio.run(episodes(place))


def test_no_session_plays_on_under_a_number_that_has_become_another_ones():
    theirs = Theirs("textcraft", {"get": craft("Got 1 mud")})

    async def episodes(place):
        async with place:
            old = await place.open()
            await old.reset(TASK, 0)
            theirs.restart()
            new = await place.open()
            await new.reset(TASK, 0)
            with pytest.raises(EnvironmentFailure, match="started anew"):
                await old.step("get")
            assert theirs.asked[-1][0] == "reset", "the step is not sent to the other's world"
            await old.close()
            assert (await new.step("get")).text == "Got 1 mud"
            await new.close()

    with place_at(theirs) as place:
        asyncio.run(episodes(place))


def test_an_answer_that_may_be_another_ones_is_not_believed():
    theirs = Theirs("textcraft", {"craft": craft("Crafted", 1, True)})

    async def episodes(place):
        async with place:
            old, others = await place.open(), []
            await old.reset(TASK, 0)
            ask = place.servers.call

            async def call(server, method, path, **content):
                answer = await ask(server, method, path, **content)
                if path == "/step":
                    theirs.restart()
                    others.append(await place.open())
                return answer

            place.servers.call = call
            with pytest.raises(EnvironmentFailure, match="started anew"):
                await old.step("craft")
            for session in (old, *others):
                await session.close()

    with place_at(theirs) as place:
        asyncio.run(episodes(place))


def test_sessions_spread_over_the_servers():
    both = Theirs("textcraft"), Theirs("textcraft")

    async def open_four(place):
        async with place:
            for session in [await place.open() for _ in range(4)]:
                await session.close()

    with place_at(*both) as place:
        asyncio.run(open_four(place))
    assert [theirs.created for theirs in both] == [2, 2]


def test_a_step_needs_a_task_under_way():
    theirs = Theirs("textcraft", {"craft": craft("Crafted", 1, True)})

    async def too_early(place):
        async with place:
            session = await place.open()
            with pytest.raises(RuntimeError, match="reset it first"):
                await session.step("craft")
            await session.close()

    with place_at(theirs) as place:
        asyncio.run(too_early(place))
    with pytest.raises(RuntimeError, match="reset it first"):
        play(theirs, "craft", "craft")


def test_what_the_servers_do_not_tell_comes_from_the_package_here():
    with served_app(Theirs("babyai").app) as address:
        found = environment_of("babyai", address, split="train")
        assert isinstance(found, UpstreamEnvironment)
        assert [task.id for task in found.tasks("train")] == ["babyai_5", "babyai_17"]
        with pytest.raises(ComponentError, match="none of the 1 of the split 'test'"):
            tasks_of(found, "test")
        assert found.instructions() == "Our own words."
        assert found.action_format == ActionLine()
        assert list(found.corpus()) == ["words"]
        assert found.splits == ("train", "test")


def test_the_dialect_is_recognised_and_stays_in_the_resolved_configuration():
    with served_app(Theirs("webarena").app) as address:
        found = environment_block(block("webarena", address), "environment", catalog("webarena"))
    document = found.to_document()
    assert document["dialect"] == "upstream"
    assert document["env_addr"] == [address]
    # The server is gone by now; what was recognised is not asked again.
    again = environment_block(document, "environment", catalog("webarena"))
    assert again.component == found.component


def test_a_server_of_this_project_is_none_of_them(textcraft_server):
    fields = {"use": "textcraft", "env_addr": textcraft_server}
    installed = Catalog.installed()
    found = environment_block(fields, "environment", installed).component
    assert isinstance(found, RemoteEnvironment)
    told = environment_block({**fields, "dialect": "upstream"}, "environment", installed).component
    with pytest.raises(ConfigError, match="or leave `dialect` out"):
        asyncio.run(told.open())


def test_a_server_that_is_away_is_taken_for_one_of_this_project():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    assert isinstance(environment_of("babyai", address, dialect=None), RemoteEnvironment)
    assert isinstance(environment_of("babyai", address, dialect="upstream"), UpstreamEnvironment)


@pytest.mark.parametrize(
    ("wanted", "there", "error", "message"),
    [
        ("textcraft", "sciworld", ConfigError, r"ScienceWorld.*TextCraft"),
        ("searchqa", "webarena", EnvironmentFailure, "something else than searchqa"),
    ],
)
def test_a_server_of_something_else(wanted, there, error, message):
    with served_app(Theirs(there).app) as address, pytest.raises(error, match=message):
        asyncio.run(environment_of(wanted, address).open())


def test_an_environment_that_agentgym_does_not_serve():
    fields = {"use": "maze", "env_addr": "http://127.0.0.1:9", "dialect": "upstream"}
    message = "environment.dialect: .* textcraft, babyai, sciworld, searchqa, webarena, and maze"
    with pytest.raises(ConfigError, match=message):
        environment_block(fields, "environment", catalog("maze"))


def test_a_package_that_is_not_installed_here():
    fields = block("sciworld", "http://127.0.0.1:9", dialect="upstream")
    message = r"environment: .*tell neither tasks.*pip install agentgym-sciworld"
    with pytest.raises(ComponentNotFoundError, match=message):
        environment_block(fields, "environment", catalog("babyai"))


def test_every_row_is_tried_here():
    assert set(ROWS) == set(GREETINGS)
    assert all(re.fullmatch(r"[a-z]+", name) for name in ROWS)


class TestTextCraftBothWays(EnvironmentConformance):
    """Our client on our server, in the dialect of neither."""

    environment = None

    @pytest.fixture(autouse=True)
    def _both_ways(self, upstream_textcraft):
        fields = {"use": "textcraft", "env_addr": upstream_textcraft, "num_goals": 20}
        fields["depths"] = [1, 2]
        found = environment_block(fields, "environment", Catalog.installed()).component
        assert isinstance(found, UpstreamEnvironment)
        self.environment = found

    def test_survives_yaml(self):
        """Its block does: it holds the environment here, which `structure` alone cannot build."""
        written = yaml.safe_load(yaml.safe_dump({"use": "textcraft", **self.environment.block()}))
        again = environment_block(written, "environment", Catalog.installed())
        assert again.component == self.environment


@pytest.fixture(scope="session")
def upstream_textcraft():
    options = ("num_goals=20", "depths=[1,2]", "--dialect", "upstream")
    with serving("textcraft", *options, "--port", "0") as (address, _):
        yield address
