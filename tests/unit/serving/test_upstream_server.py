"""The server in AgentGym's dialect, asked as its clients ask: raw requests, written by hand."""

import re

import attrs
import httpx
import pytest

from agentgym_core.actions import ActionLine
from agentgym_core.errors import ConfigError, FormatError
from agentgym_core.protocols import Environment, Session
from agentgym_core.serving.server import ServerSettings
from agentgym_core.serving.upstream_server import make_upstream_app
from agentgym_core.testing.servers import served_app, serving
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Observation, Task


class Fenced:
    """The action stands between two marks."""

    def __init__(self, pattern):
        self.pattern = pattern

    def instructions(self, thought):
        return "Mark it."

    def parse(self, text):
        if found := re.search(self.pattern, text, re.S):
            return found[0].strip("`")
        raise FormatError("Mark your action.")

    def render(self, action, thought=""):
        return action


FORMATS = {
    "searchqa": Fenced(r"<(search|answer)>.*?</\1>"),
    "webarena": Fenced(r"```.*?```"),
}
PARTS = {  # reward, score, how it ends
    "climb": (0.25, 25, {}),
    "win": (0.75, 100, {"terminated": True, "success": True}),
    "spoil": (0.0, -100, {"terminated": True}),
    "wait for ever": (0.0, 0, {"truncated": True}),
    "nothing to gain": (float("nan"), 0, {}),
}


@attrs.frozen(kw_only=True)
class World(Environment):
    name: str
    talkative: bool = True
    """Says in `info` what the dialect reads there."""

    def tasks(self, split):
        return [Task(id=f"{self.name}_{n}", category="hills") for n in range(3)]

    async def open(self):
        return WorldSession(self)

    @property
    def action_format(self):
        return FORMATS.get(self.name, ActionLine())


class WorldSession(Session):
    def __init__(self, world):
        self.world = world

    async def reset(self, task, seed):
        info = {"task_name": "climb-2", "variation": 7, "task_description": "Climb hill 2.",
                "score": 0, "sites": ["map"], "intent": "Climb hill 2."}  # fmt: skip
        text = f"Climb hill {task.id[-1]}.\nYou stand below."
        return Observation(messages=text, info=info if self.world.talkative else {})

    async def step(self, action):
        action = re.sub(r"</?(search|answer)>", "", action)
        if action == "stumble":
            raise ConnectionError("the hill is gone")
        reward, score, end = PARTS.get(action, (0.0, 0, {}))
        info = {"score": score} if self.world.talkative else {}
        return Observation(messages=f"You {action}.", reward=reward, info=info, **end)

    async def available_actions(self):
        return ["climb", "win"]


class Client:
    def __init__(self, address):
        self.http = httpx.Client(base_url=address, trust_env=False, timeout=20)

    def post(self, path, **body):
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def get(self, path, **query):
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def client_of():
    """A client of the server of that name; the servers end with the module."""
    import contextlib

    with contextlib.ExitStack() as stack:
        clients = {}

        def client(name, **options):
            key = (name, *options.items())
            if key not in clients:
                app = make_upstream_app(World(name=name, **options), name, ServerSettings())
                clients[key] = Client(stack.enter_context(served_app(app)))
                stack.callback(clients[key].http.close)
            return clients[key]

        yield client


def test_textcraft_as_the_command_serves_it():
    with serving("textcraft", "--dialect", "upstream", "--port", "0") as (address, _):
        client = Client(address)
        assert client.get("/") == "This is environment TextCraft."
        first = client.post("/create", commands=None, goal=None)
        assert set(first) == {"id", "observation", "done", "reward"}
        assert (first["id"], first["done"], first["reward"]) == (0, False, 0)
        assert client.post("/create")["id"] == 1
        # 300 is mossy stone bricks, whose four actions stand in the plugin's README.
        begun = client.post("/reset", id=0, data_idx=300)
        assert set(begun) == {"id", "observation", "done", "reward"}
        assert "mossy stone bricks" in begun["observation"].splitlines()[-1]
        assert client.get("/observation", id=0) == begun["observation"]
        assert (
            client.post("/reset", id=1, data_idx=300 + 544)["observation"] == begun["observation"]
        )
        answers = [
            client.post("/step", id=0, action=action)
            for action in (
                "get 4 stone",
                "craft 4 stone bricks using 4 stone",
                "get 1 vine",
                "dance",
                "craft 1 mossy stone bricks using 1 stone bricks, 1 vine",
            )
        ]
        assert {*answers[0]} == {"observation", "reward", "done"}
        assert [answer["reward"] for answer in answers] == [0, 0, 0, 0, 1]
        assert [answer["done"] for answer in answers] == [False] * 4 + [True]
        assert client.get("/detail", id=0) == {**answers[-1], "deleted": False}
        assert "ended" in client.post("/step", id=0, action="inventory")["error"]
        assert client.post("/step", id=1, action="inventory")["done"] is False
        assert client.post("/reset", id=0)["observation"] != begun["observation"]
        assert client.post("/close", id=0) is True
        assert client.post("/close", id=0) is False
        assert set(client.post("/step", id=0, action="inventory")) == {"error"}
        assert set(client.post("/reset", id=99, data_idx=0)) == {"error"}
        assert client.http.post("/step", json={"action": "x"}).status_code == 422
        assert client.http.get("/info").status_code == 404
        client.http.close()


def test_babyai(client_of):
    client = client_of("babyai", talkative=False)
    assert client.get("/") == "This is environment BabyAI."
    number = client.http.post("/create").json()["id"]
    begun = {"observation": "Climb hill 2.\nYou stand below.", "reward": 0, "score": 0}
    begun |= {"deleted": False, "done": False}
    assert client.post("/reset", id=number, data_idx=2) == begun
    assert client.get("/observation", id=number) == begun
    step = {"observation": "You climb.", "reward": 0.25, "score": 0.25, "done": False}
    assert client.post("/step", id=number, action="climb") == step
    won = {"observation": "You win.", "reward": 0.75, "score": 1.0, "done": True}
    assert client.post("/step", id=number, action="win") == won
    assert client.get("/observation", id=number) == {**won, "deleted": False}
    client.post("/reset", id=number, data_idx=0)
    assert client.post("/step", id=number, action="wait for ever")["done"] is True
    assert client.post("/close", id=number) is True


def test_sciworld(client_of):
    client = client_of("sciworld")
    assert client.get("/") == "This is environment ScienceWorld."
    made = client.http.post("/create").json()
    assert set(made) == {"id"}
    number = made["id"]
    assert client.post("/reset", id=number, data_idx=2) == {
        "task_name": "climb-2",
        "var_num": 7,
        "task_description": "Climb hill 2.",
        "observation": "You stand below.",
        "reward": 0,
        "score": 0,
        "deleted": False,
        "done": False,
    }
    assert client.get("/task_description", id=number) == {"task_description": "Climb hill 2."}
    assert client.get("/action_hint", id=number) == {
        "possible_actions": ["climb", "win"], "possible_objects": []
    }  # fmt: skip
    step = {"observation": "You climb.", "reward": 25, "score": 25, "done": False}
    assert client.post("/step", id=number, action="climb") == step
    assert client.get("/observation", id=number) == "You climb."
    lost = {"observation": "You spoil.", "reward": 0, "score": -100, "done": True}
    assert client.post("/step", id=number, action="spoil") == lost
    assert client.get("/detail", id=number) == {**lost, "deleted": False}
    assert client.post("/close", id=number) is True


def test_sciworld_without_anything_in_info(client_of):
    client = client_of("sciworld", talkative=False)
    number = client.post("/create")["id"]
    begun = client.post("/reset", id=number, data_idx=1)
    assert (begun["task_name"], begun["var_num"], begun["task_description"]) == ("hills", 1, "")
    assert begun["observation"] == "Climb hill 1.\nYou stand below."
    scores = [client.post("/step", id=number, action=word)["score"] for word in ("climb", "win")]
    assert scores == [25, 100]


def test_searchqa(client_of):
    client = client_of("searchqa")
    assert client.get("/") == "ok"
    number = client.post("/create", id=0)
    assert type(number) is int
    opening = "Climb hill 2.\nYou stand below."
    assert client.post("/reset", env_idx=number, id=2) == opening
    searched = client.post("/step", env_idx=number, action="<think>a</think><search>b</search>")
    assert searched == {"observation": "You b.", "reward": 0, "done": False, "info": None}
    assert client.get("/observation", env_idx=number) == opening
    nothing = client.post("/step", env_idx=number, action="It is b.")
    assert nothing == {"observation": "Mark your action.", "reward": 0, "done": False, "info": None}
    won = client.post("/step", env_idx=number, action="<answer>win</answer>")
    assert won == {"observation": "You win.", "reward": 0.75, "done": True, "info": None}
    for action in ("<search>b</search>", "no mark"):
        late = client.http.post("/step", json={"env_idx": number, "action": action})
        assert late.status_code == 500
    assert client.post("/close", env_idx=number) is True
    assert client.http.get("/observation", params={"env_idx": number}).status_code == 500


def test_webarena(client_of):
    client = client_of("webarena")
    assert client.get("/") == "ok"
    made = client.http.post("/create").json()
    assert set(made) == {"env_idx"}
    number = made["env_idx"]
    opening = "Climb hill 2.\nYou stand below."
    assert client.post("/reset", env_idx=number, seed=0, idx=2) == {
        "observation": opening, "sites": ["map"], "object": "Climb hill 2."
    }  # fmt: skip
    assert client.get("/observation", env_idx=number) == opening
    step = client.post("/step", env_idx=number, action="I will ```climb```")
    flags = {"terminated": False, "truncated": False}
    assert step == {"observation": "You climb.", "reward": 0.25, "info": {"score": 25}, **flags}
    nothing = client.post("/step", env_idx=number, action="climb")
    assert nothing == {"observation": "Mark your action.", "reward": 0, "info": {}, **flags}
    over = client.post("/step", env_idx=number, action="```wait for ever```")
    assert (over["terminated"], over["truncated"], over["reward"]) == (True, True, 0)
    late = client.post("/step", env_idx=number, action="```climb```")
    assert (late["reward"], late["info"], late["terminated"]) == (0, None, False)
    assert client.post("/reset", env_idx=number, seed=0, idx=9) == {
        "observation": "TimeoutError", "sites": "Error", "object": "Error"
    }  # fmt: skip
    assert client.post("/close", env_idx=number) == {"closed": "closed"}
    assert client.post("/close", env_idx=number) == {"closed": "closed"}


@pytest.mark.parametrize("action", ["stumble", "nothing to gain"])
@pytest.mark.parametrize("name", ["babyai", "sciworld"])
def test_a_failure_is_an_error_and_no_reward(client_of, name, action):
    client = client_of(name)
    number = client.post("/create")["id"]
    assert set(client.post("/step", id=number, action="climb")) == {"error"}, "before the reset"
    assert set(client.post("/reset", id=number, data_idx=3)) == {"error"}, "no such task"
    client.post("/reset", id=number, data_idx=0)
    assert set(client.post("/step", id=number, action=action)) == {"error"}


@pytest.mark.parametrize("action", ["```stumble```", "```nothing to gain```"])
def test_webarena_tells_a_failure_in_words(client_of, action):
    client = client_of("webarena")
    number = client.post("/create")["env_idx"]
    client.post("/reset", env_idx=number, seed=0, idx=0)
    said = client.post("/step", env_idx=number, action=action)
    assert (said["reward"], said["terminated"], said["info"]) == (0, False, None)


def test_a_create_may_name_a_task_that_is_not_there(client_of):
    number = client_of("searchqa").post("/create", id=77)
    asked = client_of("searchqa").http.get("/observation", params={"env_idx": number})
    assert asked.status_code == 500


def test_an_environment_that_agentgym_does_not_serve():
    with pytest.raises(ConfigError) as error:
        make_upstream_app(Countdown(), "countdown", ServerSettings())
    assert str(error.value) == (
        "--dialect: AgentGym's own servers and clients are known for textcraft, babyai, sciworld, "
        "searchqa, webarena, and countdown is none of these: leave it out, to speak this project's "
        "protocol"
    )
