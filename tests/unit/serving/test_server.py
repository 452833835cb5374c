"""The server by itself, asked by a plain HTTP client."""

import concurrent.futures
import json
import time

import httpx
import pytest

from agentgym_core.testing.servers import served
from agentgym_core.testing.worlds import Countdown


class Caller:
    """Raw requests; an answer is its status and its body."""

    def __init__(self, address, **options):
        self.http = httpx.Client(base_url=address, trust_env=False, timeout=20, **options)

    def post(self, path, **body):
        headers = {"Content-Type": "application/json"}
        answer = self.http.post(path, content=json.dumps(body), headers=headers)
        return answer.status_code, answer.json()

    def get(self, path, **query):
        answer = self.http.get(path, params=query)
        return answer.status_code, answer.json()

    def session(self, number=2, **more):
        made = self.post("/create")[1]["id"]
        status, _ = self.post("/reset", id=made, task=f"countdown_{number}", **more)
        assert status == 200
        return made


@pytest.fixture(scope="module")
def address():
    with served(Countdown()) as found:
        yield found


@pytest.fixture
def caller(address):
    caller = Caller(address)
    yield caller
    caller.http.close()


def kind(answer):
    status, body = answer
    assert set(body) == {"error"}
    assert set(body["error"]) == {"type", "message"}
    return status, body["error"]["type"]


def test_an_episode(caller):
    made = caller.post("/create")
    assert made[0] == 200
    name = made[1]["id"]
    assert len(name) >= 32
    assert caller.post("/reset", id=name, task="countdown_1", seed=3) == (
        200,
        {
            "step": 0,
            "observation": {"messages": [{"role": "user", "content": "The number is 1."}]},
        },
    )
    assert caller.get("/available_actions", id=name) == (200, {"actions": ["down", "lift off"]})
    assert caller.get("/expert_action", id=name) == (200, {"action": "down"})
    counted = caller.post("/step", id=name, action="down", step=1)
    assert counted == (
        200,
        {
            "step": 1,
            "observation": {
                "messages": [{"role": "user", "content": "The number is 0."}],
                "rewards": {"progress": 0.1},
            },
        },
    )
    assert caller.get("/observation", id=name) == counted
    status, last = caller.post("/step", id=name, action="lift off")
    assert (status, last["step"]) == (200, 2)
    seen = last["observation"]
    assert (seen["reward"], seen["terminated"], seen["success"]) == (1.0, True, True)
    assert caller.post("/close", id=name) == (200, {"closed": True})
    assert caller.post("/close", id=name) == (200, {"closed": False})


def test_a_step_that_is_sent_twice_is_applied_once(caller):
    name = caller.session(3)
    first = caller.post("/step", id=name, action="down", step=1)
    assert caller.post("/step", id=name, action="down", step=1) == first
    assert first[1]["observation"]["messages"][0]["content"] == "The number is 2."
    second = caller.post("/step", id=name, action="down", step=2)
    assert second[1]["observation"]["messages"][0]["content"] == "The number is 1."
    assert kind(caller.post("/step", id=name, action="lift off", step=2)) == (409, "other-action")
    assert kind(caller.post("/step", id=name, action="down", step=1)) == (409, "wrong-step")
    assert kind(caller.post("/step", id=name, action="down", step=4)) == (409, "wrong-step")


def test_the_last_step_of_an_episode_can_be_sent_twice_too(caller):
    name = caller.session(2)
    last = caller.post("/step", id=name, action="lift off", step=1)
    assert caller.post("/step", id=name, action="lift off", step=1) == last
    assert kind(caller.post("/step", id=name, action="lift off", step=2)) == (409, "episode-over")
    assert kind(caller.post("/step", id=name, action="down")) == (409, "episode-over")


def test_twenty_copies_of_a_step_at_once_are_one_step(caller, address):
    name = caller.session(4)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:

        def send(_):
            with httpx.Client(trust_env=False) as http:
                body = {"id": name, "action": "down", "step": 1}
                return http.post(f"{address}/step", json=body).json()

        answers = list(pool.map(send, range(20)))
    assert all(answer == answers[0] for answer in answers)
    assert caller.get("/observation", id=name)[1]["step"] == 1
    assert answers[0]["observation"]["messages"][0]["content"] == "The number is 3."


def test_a_reset_that_comes_late_does_not_begin_again(caller):
    name = caller.session(3, episode=0)
    caller.post("/step", id=name, action="down", step=1)
    again = caller.post("/reset", id=name, task="countdown_3", episode=0)
    assert again[1]["step"] == 1, "the reset that was sent twice is answered as things stand"
    assert caller.post("/reset", id=name, task="countdown_4", episode=1)[1]["step"] == 0
    late = caller.post("/reset", id=name, task="countdown_3", episode=0)
    assert kind(late) == (409, "old-episode")


def test_a_session_that_is_created_twice_with_one_key_is_one(caller):
    before = caller.get("/health")[1]["sessions"]
    first = caller.post("/create", key="mine")
    assert caller.post("/create", key="mine") == first
    assert caller.get("/health")[1]["sessions"] == before + 1
    caller.post("/close", id=first[1]["id"])
    assert caller.post("/create", key="mine") != first


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/step", {"id": "nobody", "action": "down"}, (404, "unknown-session")),
        ("/reset", {"id": "nobody", "task": "countdown_1"}, (404, "unknown-session")),
        ("/step", {"action": "down"}, (422, "invalid")),
        ("/step", {"id": "x", "action": 3}, (422, "invalid")),
        ("/step", {"id": "x", "action": "\ud800"}, (422, "invalid")),
        ("/render", {"action": "\ud800"}, (422, "invalid")),
        ("/step", {"id": "x", "action": "down", "step": 0}, (422, "invalid")),
        ("/step", {"id": "x", "action": "down", "setp": 1}, (422, "invalid")),
        ("/reset", {"id": "x", "task": "countdown_1", "seed": -1}, (422, "invalid")),
        ("/reset", {"id": "x", "task": "countdown_1", "seed": 2**63}, (422, "invalid")),
        ("/nowhere", {}, (404, "not-found")),
        ("/info", {}, (405, "method-not-allowed")),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(caller, path, body, expected):
    assert kind(caller.post(path, **body)) == expected


def test_an_invalid_field_is_named(caller):
    _, body = caller.post("/step", id="x", action="down", step="one")
    assert body["error"]["message"].startswith("body.step: Input should be a valid integer")


def test_tasks_that_nobody_knows(caller):
    name = caller.post("/create")[1]["id"]
    unknown = caller.post("/reset", id=name, task="countdown_99")
    assert kind(unknown) == (422, "unknown-task")
    assert "'countdown_99'" in unknown[1]["error"]["message"]
    strange = caller.post("/reset", id=name, task={"id": "countdown_1", "data": {}})
    assert kind(strange) == (422, "task-refused")
    assert kind(caller.post("/step", id=name, action="down")) == (409, "no-episode")
    assert kind(caller.get("/expert_action", id=name)) == (409, "no-episode")


def test_tasks_come_in_pages(caller):
    status, page = caller.get("/tasks", split="train", offset=1, limit=2)
    assert (status, page["total"]) == (200, 4)
    assert [task["id"] for task in page["tasks"]] == ["countdown_2", "countdown_3"]
    assert page["tasks"][0] == {"id": "countdown_2", "category": "even", "data": {"number": 2}}
    assert kind(caller.get("/tasks", split="trian")) == (404, "unknown-split")


def test_info_says_what_it_is(caller):
    _, info = caller.get("/info")
    assert (info["protocol"], info["environment"]) == (1, "countdown")
    assert info["package"] == "agentgym-core"
    assert info["tasks"] == {"train": 4, "test": 4}
    assert info["options"]["longest"] == 4
    assert info["action_format"] == {"use": "ActionLine", "label": "Action:"}
    assert info["instructions"] == "Count down, then lift off."


def test_metrics_for_prometheus(caller):
    name = caller.session()
    caller.post("/step", id=name, action="down")
    caller.post("/step", id="nobody", action="down")
    text = caller.http.get("/metrics").text
    assert "agentgym_sessions " in text
    assert 'agentgym_call_seconds_count{call="step"}' in text
    assert 'agentgym_errors_total{type="unknown-session"}' in text


def test_a_body_that_is_too_long(caller):
    assert kind(caller.post("/step", id="x", action="d" * (5 * 2**20))) == (413, "too-long")


def test_a_body_of_unknown_length(caller):
    answer = caller.http.post("/create", content=iter([b"{}"]))
    assert answer.status_code == 413


def test_a_body_that_is_no_json(caller):
    headers = {"Content-Type": "application/json"}
    for body in (b"\xff", b"[" * 100_000, b"{"):
        answer = caller.http.post("/step", content=body, headers=headers)
        assert answer.status_code in (400, 422)
        assert answer.json()["error"]["type"] == "invalid"


def test_a_session_that_is_closed_during_a_step_says_so():
    with served(Countdown(fault="hang", place="process"), workers=1) as address:
        caller = Caller(address)
        name = caller.session(1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            step = pool.submit(
                httpx.post,
                f"{address}/step",
                json={"id": name, "action": "down"},
                timeout=20,
            )
            time.sleep(0.3)
            assert caller.post("/close", id=name) == (200, {"closed": True})
            answer = step.result()
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            404,
            "the session was closed",
        )
        caller.http.close()


def test_a_server_that_is_full_says_when_to_come_again(monkeypatch):
    monkeypatch.setattr("agentgym_core.serving.sessions.WAIT_SECONDS", 0.2)
    with served(Countdown(), max_sessions=2) as address:
        caller = Caller(address)
        held = [caller.post("/create")[1]["id"] for _ in range(2)]
        answer = caller.http.post("/create")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["type"] == "full"
        caller.post("/close", id=held[0])
        assert caller.post("/create")[0] == 200
        caller.http.close()


def test_a_session_that_nobody_uses_is_closed():
    with served(Countdown(), idle_seconds=0.4) as address:
        caller = Caller(address)
        idle, used = caller.session(), caller.session()
        for _ in range(8):
            time.sleep(0.1)
            assert caller.get("/observation", id=used)[0] == 200
        assert kind(caller.get("/observation", id=idle)) == (404, "unknown-session")
        assert caller.get("/health")[1]["sessions"] == 1
        assert "agentgym_collected_total 1.0" in caller.http.get("/metrics").text
        caller.http.close()


def test_a_token_is_demanded():
    with served(Countdown(), token="open sesame") as address:
        for headers in ({}, {"Authorization": "Bearer open"}, {"Authorization": "open sesame"}):
            caller = Caller(address, headers=headers)
            assert kind(caller.post("/create")) == (401, "unauthorized")
            caller.http.close()
        caller = Caller(address, headers={"Authorization": "Bearer open sesame"})
        assert caller.post("/create")[0] == 200
        caller.http.close()


@pytest.mark.parametrize(
    ("fault", "path", "expected"),
    [
        ("reset", "/reset", (422, "task-refused")),
        ("step", "/step", (500, "environment-failed")),
        ("hang", "/step", (504, "environment-timeout")),
    ],
)
def test_what_fails_in_the_environment_is_told_apart(fault, path, expected, monkeypatch):
    monkeypatch.setattr("agentgym_core.serving.sessions.GRACE_SECONDS", 0.1)
    with served(Countdown(fault=fault), call_seconds=0.3) as address:
        caller = Caller(address)
        made = caller.post("/create")[1]
        answer = caller.post("/reset", id=made["id"], task="countdown_1")
        if path == "/step":
            answer = caller.post("/step", id=made["id"], action="down", step=1)
            for number in (1, 2, 7):
                again = caller.post("/step", id=made["id"], action="down", step=number)
                assert kind(again) == (409, "broken-session")
        assert kind(answer) == expected
        assert "Countdown (package agentgym-core" in answer[1]["error"]["message"]
        caller.http.close()


def test_an_infinite_reward_arrives_as_what_it_is():
    with served(Countdown(fault="nan")) as address:
        caller = Caller(address)
        name = caller.session(1)
        caller.post("/step", id=name, action="down")
        _, last = caller.post("/step", id=name, action="lift off")
        assert last["observation"]["reward"] == "nan"
        caller.http.close()
