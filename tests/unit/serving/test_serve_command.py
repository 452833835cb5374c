"""`agentgym serve`, as a person starts it."""

import httpx
import pytest
from click.testing import CliRunner

from agentgym_core.cli import main
from agentgym_core.testing.servers import serving

RECIPE = """
name: x
environments:
  - {use: textcraft, num_goals: 7, weight: 2, split: test, host: {recycle_after: 3}}
  - textcraft
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(RECIPE)
    return str(path)


def said(*arguments):
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert result.exit_code == 2
    return result.output


def test_fields_come_from_a_run_and_options_go_over_them(recipe):
    with serving("textcraft", "goal_seed=3", "--recipe", recipe, "--port", "0") as (address, _):
        options = httpx.get(f"{address}/info", trust_env=False).json()["options"]
    assert (options["num_goals"], options["goal_seed"]) == (7, 3)


def test_a_run_without_that_environment(recipe):
    assert "has no environment babyai" in said("babyai", "--recipe", recipe)


def test_what_is_no_environment():
    assert "no environment is called 'textcarft'" in said("textcarft")


def test_a_wrong_field():
    assert "textcraft.num_gaols: unknown key. Did you mean num_goals?" in said(
        "textcraft", "num_gaols=3"
    )


def test_what_cannot_open_is_told_at_the_start():
    corpus = "retriever={bm25: {corpus: no-such-file.jsonl}}"
    with (
        pytest.raises(AssertionError, match="there is no file no-such-file"),
        serving("searchqa", corpus, "--port", "0"),
    ):
        raise RuntimeError("it must not come so far")


def test_a_port_that_is_taken():
    with serving("textcraft", "--port", "0") as (address, _):
        port = address.rpartition(":")[2]
        assert f"--port: cannot listen at 127.0.0.1:{port}" in said("textcraft", "--port", port)


def test_workers_and_room():
    arguments = ("textcraft", "--workers", "2", "--max-sessions", "5", "--port", "0")
    with serving(*arguments) as (address, _):
        health = httpx.get(f"{address}/health", trust_env=False).json()
    assert health == {"protocol": 1, "status": "ok", "sessions": 0, "capacity": 5}
