"""What a policy would have read next, of an episode that was cut."""

import asyncio

import pytest

from agentgym_core.handler import ModelPolicy
from agentgym_core.renderer import Renderer
from agentgym_core.session import EpisodeSession
from agentgym_core.settings import Limits
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import WORDS, WORDS_WITHOUT_THINKING, WordTokenizer
from agentgym_core.testing.worlds import Nothing
from agentgym_core.types import Ending, Sampling

WORLD = Nothing()
# The ids of the words are 4, 5, …, after <e> 0, <s> 1, <u> 2, <a> 3.
WORDS_USED = "down what more <think> </think> hm"
CUT = [Ending.STEP_LIMIT, Ending.OUT_OF_ROUNDS, Ending.OUT_OF_TOKENS]


def handler(reply="down", *, template=WORDS, max_model_len=None):
    """A handler that has read `<u> what <e> <a>` and sampled the reply."""
    tokenizer = WordTokenizer(WORDS_USED, template)
    sampler = ScriptedSampler(
        script=lambda _: tokenizer.encode(f"{reply} <e>"), max_model_len=max_model_len
    )
    limits = Limits(max_prompt_tokens=30, max_response_tokens=30, max_tokens=9)
    policy = ModelPolicy(renderer=Renderer(tokenizer), sampler=sampler, limits=limits)
    task = WORLD.tasks("train")[0]
    session = EpisodeSession(asyncio.run(WORLD.open()), WORLD, task, seed=0, max_rounds=9)
    made = policy.begin(session, sampling=Sampling(), key="0", seed=0)
    made.add("what")
    return made, session


def spoken(**options):
    made, session = handler(**options)
    asyncio.run(made.reply())
    return made, session


@pytest.mark.parametrize("ending", CUT)
def test_of_an_episode_that_was_cut_they_are_the_ids_of_its_next_prompt(ending):
    made, session = spoken()
    made.add("more")
    session.end(ending)
    assert made.final_ids() == (2, 6, 0, 3)
    assert made.final_ids() == (2, 6, 0, 3), "asking changes nothing"


@pytest.mark.parametrize("ending", [None, *(e for e in Ending if e not in CUT)])
def test_of_any_other_episode_there_are_none(ending):
    made, session = spoken()
    made.add("more")
    if ending is not None:
        session.end(ending)
    assert made.final_ids() == ()


def test_before_the_first_reply_there_are_none():
    made, session = handler()
    session.end(Ending.OUT_OF_TOKENS)
    assert made.final_ids() == ()


def test_where_nothing_was_added_since_the_reply_there_are_none():
    made, session = spoken()
    session.end(Ending.OUT_OF_ROUNDS)
    assert made.final_ids() == ()


def test_of_a_fresh_context_there_are_none():
    made, session = spoken()
    made.begin("what")
    made.add("more")
    session.end(Ending.OUT_OF_ROUNDS)
    assert made.final_ids() == ()


def test_where_the_template_rewrites_the_context_there_are_none():
    made, session = spoken(reply="<think> hm </think> down", template=WORDS_WITHOUT_THINKING)
    made.add("more")
    session.end(Ending.OUT_OF_ROUNDS)
    assert made.final_ids() == ()


@pytest.mark.parametrize(("longest", "found"), [(10, (2, 6, 0, 3)), (9, ())])
def test_what_the_model_cannot_read_is_left_out(longest, found):
    """4 tokens read, 2 sampled, 4 more."""
    made, session = spoken(max_model_len=longest)
    made.add("more")
    session.end(Ending.OUT_OF_TOKENS)
    assert made.final_ids() == found
