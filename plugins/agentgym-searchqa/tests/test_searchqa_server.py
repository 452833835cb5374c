"""The client of retrieval servers, against a real one."""

import asyncio
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs
import pytest

from agentgym_searchqa import server as client_module
from agentgym_searchqa.retrieval import Passage, RetrievalError
from agentgym_searchqa.server import Server, ServerClient


class Handler(BaseHTTPRequestHandler):
    """Answers as Search-R1's retriever does, or as the test says."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.num_connections += 1

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.counting:
            self.server.asked.append((self.path, asked))
            answer = self.server.answers.pop(0) if self.server.answers else None
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        time.sleep(self.server.delay)
        if answer == "hang up":
            self.close_connection = True
        else:
            self.say(*(answer or (200, {"result": [ranked(q, asked) for q in asked["queries"]]})))
        with self.server.counting:
            self.server.now -= 1

    def say(self, status, answer):
        body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given):
        pass


def ranked(query, asked):
    return [
        {"document": {"id": str(n), "contents": f'"{query}"\nText {n}.'}, "score": 1 / (n + 1)}
        for n in range(asked["topk"])
    ]


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass


@pytest.fixture
def served(monkeypatch):
    """A server, and the settings that lead to it."""
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.01)
    server = Quiet(("127.0.0.1", 0), Handler)
    server.asked, server.answers, server.delay, server.num_connections = [], [], 0.0, 0
    server.now = server.most = 0
    server.counting = threading.Lock()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    settings = Server(url=f"http://127.0.0.1:{server.server_port}/retrieve", num_retries=2)
    yield server, settings
    server.shutdown()
    server.server_close()
    thread.join()


async def search(settings, *queries, k=2):
    client = ServerClient(settings)
    try:
        return await client.search(queries, k)
    finally:
        await client.close()
        await client.close()


def passage(n, query):
    return Passage(id=str(n), title=query, text=f"Text {n}.")


def test_what_is_asked_and_what_comes_back(served):
    server, settings = served
    found = asyncio.run(search(settings, "red", "blue 🙂"))
    assert found == [
        [passage(0, "red"), passage(1, "red")],
        [passage(n, "blue 🙂") for n in (0, 1)],
    ]
    asked = {"queries": ["red", "blue 🙂"], "topk": 2, "return_scores": True}
    assert server.asked == [("/retrieve", asked)]
    assert not client_module._pools or not any(client_module._pools.values())


@pytest.mark.parametrize(
    ("result", "passages"),
    [
        ([{"id": 4, "contents": '"A"\nb'}], [Passage(id="4", title="A", text="b")]),  # no scores
        ([{"document": {"title": "A", "text": "b"}}], [Passage(id="", title="A", text="b")]),
        ([{"document": {"id": "7", "text": "b"}}], [Passage(id="7", title="", text="b")]),
        ([], []),
        (
            [{"contents": str(n)} for n in range(5)],
            [Passage(id="", title="", text=t) for t in "01"],
        ),
    ],
)
def test_forms_of_answers(served, result, passages):
    server, settings = served
    server.answers = [(200, {"result": [result]})]
    assert asyncio.run(search(settings, "red")) == [passages]


@pytest.mark.parametrize(
    "answer",
    [
        {"result": []},
        {"result": [[], []]},
        {"result": [[{"document": {"id": 1}}]]},
        {"result": [["text"]]},
        {"result": None},
        {"error": "out of memory"},
        [],
        "no JSON",
    ],
)
def test_another_form_is_a_failure_and_not_asked_again(served, answer):
    server, settings = served
    server.answers = [(200, answer)]
    with pytest.raises(RetrievalError, match="answered in another form than"):
        asyncio.run(search(settings, "red"))
    assert len(server.asked) == 1


@pytest.mark.parametrize("fault", [(500, "oops"), (503, ""), (429, "slow down"), "hang up"])
def test_a_fault_that_passes_is_tried_again(served, fault):
    server, settings = served
    server.answers = [fault, fault]
    assert asyncio.run(search(settings, "red", k=1)) == [[passage(0, "red")]]
    assert len(server.asked) == 3


def test_a_fault_that_stays_is_a_failure(served):
    server, settings = served
    server.answers = [(503, "")] * 5
    with pytest.raises(RetrievalError, match=r"no result in 3 tries; the last one: status 503\."):
        asyncio.run(search(settings, "red"))
    assert len(server.asked) == 3


def test_a_refusal_is_not_asked_again(served):
    server, settings = served
    server.answers = [(404, "not here")]
    with pytest.raises(RetrievalError, match=r"refused a search with status 404: 'not here'"):
        asyncio.run(search(settings, "red"))
    assert len(server.asked) == 1


def test_a_hang_ends_in_time(served):
    server, settings = served
    server.delay = 0.6
    start = time.perf_counter()
    with pytest.raises(RetrievalError, match="in 1 tries; the last one: ReadTimeout"):
        asyncio.run(search(attrs.evolve(settings, timeout_seconds=0.1, num_retries=0), "red"))
    assert time.perf_counter() - start < 0.5


def test_no_server(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.01)
    with pytest.raises(RetrievalError, match=r"ConnectError.*See that the server of"):
        asyncio.run(search(Server(url="http://127.0.0.1:9/retrieve", num_retries=1), "red"))


async def many(settings, num, rounds):
    async with contextlib.AsyncExitStack() as stack:
        clients = [ServerClient(settings) for _ in range(num)]
        for client in clients:
            stack.push_async_callback(client.close)
        for _ in range(rounds):
            found = await asyncio.gather(*(c.search([str(n)], 1) for n, c in enumerate(clients)))
            assert found == [[[passage(0, str(n))]] for n in range(num)]


def test_sessions_share_connections(served):
    server, settings = served
    server.delay = 0.02
    asyncio.run(many(attrs.evolve(settings, max_connections=4), 16, 3))
    assert server.num_connections <= 4
    assert 2 <= server.most <= 4


def test_one_session_may_close_while_others_search(served):
    _, settings = served

    async def played():
        one, other = ServerClient(settings), ServerClient(settings)
        await one.search(["a"], 1)
        await other.search(["b"], 1)
        await one.close()
        assert await other.search(["c"], 1) == [[passage(0, "c")]]
        await other.close()
        assert await one.search(["d"], 1) == [[passage(0, "d")]]  # as good as new
        await one.close()

    asyncio.run(played())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "10.0.0.5:8000"}, r"`url` is '10.0.0.5:8000': give the whole address"),
        ({"timeout_seconds": 0}, r"`timeout_seconds` is 0: give more than 0"),
        ({"timeout_seconds": float("nan")}, r"`timeout_seconds` is nan"),
        ({"num_retries": -1}, r"`num_retries` is -1: give 0 or more"),
        ({"max_connections": 0}, r"`max_connections` is 0: give 1 or more"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Server(**{"url": "http://a/retrieve", **options})
