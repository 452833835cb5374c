"""Episodes as a run plays them: replies in text, and a server that is down."""

import asyncio

import attrs
import pytest

from agentgym_core.agents.react import React
from agentgym_core.handler import ModelPolicy
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_episode
from agentgym_core.settings import Limits
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import CHATML, byte_tokenizer
from agentgym_core.types import Ending, Message, Sampling
from agentgym_searchqa.environment import Retrieval, SearchQA
from agentgym_searchqa.server import Server

RIGHT, WRONG = "<think>I know it.</think>\n<answer>warsaw</answer>", "<answer>Lodz</answer>"
DOWN = Retrieval(server=Server(url="http://127.0.0.1:9/retrieve", num_retries=0))


def play(replies, environment=None):
    """An episode of a policy that says these replies."""
    environment = environment or SearchQA()
    renderer = Renderer(byte_tokenizer(CHATML))
    left = list(replies)
    sampler = ScriptedSampler(
        script=lambda request: renderer.reply_ids(Message("assistant", left.pop(0))), version=1
    )
    limits = Limits(max_prompt_tokens=4000, max_response_tokens=20_000, max_tokens=200)
    table = Table(
        environments={"searchqa": environment},
        agent=React(),
        policy=ModelPolicy(renderer=renderer, sampler=sampler, limits=limits),
        max_retries=0,
    )
    attempts = Attempts(
        environment="searchqa",
        task=SearchQA().task("searchqa_capital-pl"),
        num=1,
        max_rounds=3,
        sampling=Sampling(),
        seed=1,
    )
    return asyncio.run(play_episode(table, attempts, 0))


@pytest.mark.parametrize(
    ("replies", "ending", "reward", "rounds"),
    [
        (["<search>Poland capital</search>", RIGHT], Ending.DONE, 1, 2),
        ([RIGHT], Ending.DONE, 1, 1),
        ([WRONG], Ending.DONE, 0, 1),  # there is no second guess
        (["Warsaw", "<think><answer>Warsaw</answer></think>", RIGHT], Ending.DONE, 1, 3),
        ([RIGHT + WRONG, WRONG], Ending.DONE, 0, 2),
        (["<search>a</search>"] * 3, Ending.OUT_OF_ROUNDS, 0, 3),
    ],
)
def test_episodes(replies, ending, reward, rounds):
    episode = play(replies)
    assert (episode.ending, episode.reward, episode.num_rounds) == (ending, reward, rounds)
    assert episode.success == (reward == 1)


def test_a_reply_of_another_form_is_told_how_to_do_better():
    first = play(["It is Warsaw.", RIGHT]).turns[0]
    assert first.format_error
    assert first.observation == (
        "Your reply named no action. Name exactly one: <search>…</search> or <answer>…</answer>"
    )


def test_a_server_that_is_down_is_no_reward():
    episode = play(["<search>a</search>"], attrs.evolve(SearchQA(), retriever=DOWN))
    assert episode.ending is Ending.ENVIRONMENT_FAILED
    assert "RetrievalError: http://127.0.0.1:9/retrieve gave no result in 1 tries" in episode.error
    assert episode.reward == 0
    assert not episode.success
