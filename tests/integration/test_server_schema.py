"""Requests made from the server's own description: none is an error of the server."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from agentgym_core.testing.servers import served
from agentgym_core.testing.worlds import Countdown

PATHS = {
    "/info", "/health", "/tasks", "/corpus", "/metrics", "/parse", "/render", "/create", "/reset",
    "/step", "/close", "/observation", "/available_actions", "/expert_action",
}  # fmt: skip
FEW = settings(
    max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@pytest.fixture(scope="module")
def address():
    with served(Countdown(), max_sessions=10_000) as found:
        yield found


@pytest.fixture(scope="module")
def operations(address):
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    found = {operation.ok().path: operation.ok() for operation in schema.get_all_operations()}
    assert found.keys() == PATHS
    return found


@pytest.mark.parametrize("path", sorted(PATHS))
def test_a_described_request_is_never_an_error_of_the_server(path, operations):
    @given(case=operations[path].as_strategy())
    @FEW
    def send(case):
        case.call_and_validate(checks=[not_a_server_error])

    send()


@pytest.mark.parametrize("path", sorted(PATHS - {"/create"}))
def test_nor_is_one_of_a_session_that_exists(path, operations, address):
    with httpx.Client(base_url=address, trust_env=False) as http:

        @given(case=operations[path].as_strategy())
        @FEW
        def send(case):
            name = http.post("/create").json()["id"]
            http.post("/reset", json={"id": name, "task": "countdown_1"})
            for content in (case.body, case.query):
                if isinstance(content, dict) and "id" in content:
                    content["id"] = name
            case.call_and_validate(checks=[not_a_server_error])
            http.post("/close", json={"id": name})

        send()
