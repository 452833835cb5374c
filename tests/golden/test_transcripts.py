"""What is trained of an episode, word by word, for every agent and every context policy.

A transcript is written as `<u> two <e> <a> 0[down <e>]`: in brackets is what the policy sampled and
learns from, before them stands the number of the turn. Every word is one token.
"""

import asyncio

import numpy as np
import pytest

from agentgym_core.actions import WholeReply
from agentgym_core.agents.act import Act
from agentgym_core.agents.context import ContextPolicy
from agentgym_core.agents.plan_act import PlanAct
from agentgym_core.agents.react import React
from agentgym_core.agents.reflect import Reflect
from agentgym_core.batching import token_weights
from agentgym_core.handler import ModelPolicy
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import Limits
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import WORDS, WORDS_WITHOUT_THINKING, WordTokenizer
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Ending, Sampling

VOCABULARY = (  # its ids are 4, 5, …, after <e> 0, <s> 1, <u> 2, <a> 3
    "Count. Reply. The number is 0. 1. 2. 3. 4. What that? Too early. "
    "down lift off wait <think> </think> hm so far too soon "
    "Gone. Sum up. Before: Plan. Go. Again. Plan: Why. Notes: Loop. On."
)
DROP = ContextPolicy(when_full="drop", note="Gone.")
SUMMARISE = ContextPolicy(when_full="summarise", request="Sum up.", heading="Before:")
OPEN = "<s> Count. Reply. <e> <u> The number is {}. <e>"  # 10 tokens; <a> makes it 11


class Terse(Countdown):
    """The countdown in few words."""

    def instructions(self):
        return "Count."

    @property
    def action_format(self):
        return WholeReply(instruction="Reply.")


def play(agent, replies, *, number, response=200, reply=9, max_rounds=9, template=WORDS):
    """One episode, its tokenizer and its sequences."""
    tokenizer = WordTokenizer(VOCABULARY, template)
    said = iter(replies)
    sampler = ScriptedSampler(script=lambda _: tokenizer.encode(f"{next(said)} <e>"))
    limits = Limits(max_prompt_tokens=30, max_response_tokens=response, max_tokens=reply)
    policy = ModelPolicy(renderer=Renderer(tokenizer), sampler=sampler, limits=limits)
    table = Table(environments={"countdown": Terse()}, agent=agent, policy=policy)
    order = Attempts(
        environment="countdown",
        task=Terse().tasks("train")[number - 1],
        num=1,
        max_rounds=max_rounds,
        sampling=Sampling(),
        seed=3,
    )
    groups = asyncio.run(play_groups(table, [order], 1))
    (episode,) = groups[0].episodes
    assert next(said, None) is None, "the policy was asked less often than that"
    check_requests(episode, sampler.requests, response)
    return episode, tokenizer, to_sequences(groups)


def check_requests(episode, requests, response):
    """Whatever the agent does, each context is what the engine saw, and no more than it may be."""
    contexts: dict[int, tuple[int, ...]] = {}
    for turn, request in zip(episode.turns, requests, strict=True):
        context = contexts.get(turn.sequence, ()) + turn.prompt_ids
        assert context == request.token_ids
        contexts[turn.sequence] = context + turn.token_ids
    first = len(episode.turns[0].prompt_ids)
    assert all(len(context) <= first + response for context in contexts.values())


def written(tokenizer, transcript):
    """Ids, mask and turns of a transcript."""
    ids, mask, turns, turn = [], [], [], -1
    for word in transcript.split():
        number, bracket, rest = word.partition("[")
        if bracket:
            turn, word = int(number), rest
        ids += tokenizer.encode(word.removesuffix("]"))
        mask.append(turn >= 0)
        turns.append(turn)
        turn = -1 if word.endswith("]") else turn
    return ids, mask, turns


def check(played, *transcripts, rewards=(), shares=()):
    """Every sequence is as it is written, and each trained token has its weight.

    Args:
        played: what `play` returned.
        transcripts: one for each sequence.
        rewards: of each sequence.
        shares: of each sequence in the weight of the episode.
    """
    _, tokenizer, sequences = played
    assert len(sequences) == len(transcripts)
    for sequence, transcript in zip(sequences, transcripts, strict=True):
        ids, mask, turns = written(tokenizer, transcript)
        assert tokenizer.decode(sequence.token_ids.tolist()) == tokenizer.decode(ids)
        assert sequence.token_ids.tolist() == ids
        assert sequence.mask.tolist() == mask
        assert sequence.turns.tolist() == turns
    assert [float(s.rewards.sum()) for s in sequences] == list(rewards)
    weights = token_weights(sequences, "episode-mean")
    assert [float(w.sum()) for w in weights] == pytest.approx(shares)
    num = sum(int(s.mask.sum()) for s in sequences)
    for sequence, weight in zip(sequences, weights, strict=True):
        assert weight.tolist() == pytest.approx((sequence.mask / num).tolist())


@pytest.mark.parametrize("agent", [Act(), React()])
def test_act_and_react(agent):
    played = play(agent, ["down", "wait", "lift off"], number=1)
    check(
        played,
        f"{OPEN.format(1)} <a> 0[down <e>] <u> The number is 0. <e> <a> 1[wait <e>] "
        "<u> What is that? <e> <a> 2[lift off <e>]",
        rewards=[1],
        shares=[1],
    )
    # The same in numbers: 31 tokens, of which 7 are trained.
    (sequence,) = played[2]
    assert sequence.token_ids.tolist() == [
        1, 4, 5, 0, 2, 6, 7, 8, 10, 0, 3, 18, 0, 2, 6, 7, 8, 9, 0, 3, 21, 0, 2, 14, 8, 15, 0, 3,
        19, 20, 0,
    ]  # fmt: skip
    assert np.flatnonzero(sequence.mask).tolist() == [11, 12, 20, 21, 28, 29, 30]
    assert np.flatnonzero(sequence.rewards).tolist() == [30]
    (weights,) = token_weights(played[2], "episode-mean")
    assert weights[sequence.mask].tolist() == pytest.approx([1 / 7] * 7)


def test_stop():
    # Prompts of 11, 20, 29, … tokens; 11 + 20 = 31 leaves 2 for the third reply, which needs 2.
    played = play(Act(context="stop"), ["down"] * 3, number=4, response=20, reply=3)
    check(
        played,
        f"{OPEN.format(4)} <a> 0[down <e>] <u> The number is 3. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> <a>",
        rewards=[0],
        shares=[1],
    )
    assert played[0].ending is Ending.OUT_OF_TOKENS
    assert played[0].final_ids == (2, 6, 7, 8, 10, 0, 3), "what it would have read next"


def test_drop():
    # The fifth prompt would have 47 tokens, of 11 + 35 = 46. Of three old observations half stay,
    # which is one: 2 x 3 tokens less, 41, and the reply of at most 3 fits.
    played = play(Act(context=DROP), [*["down"] * 4, "lift off"], number=4, response=35, reply=3)
    check(
        played,
        f"{OPEN.format(4)} <a> 0[down <e>] <u> The number is 3. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> <a> 3[down <e>]",
        f"{OPEN.format(4)} <a> down <e> <u> Gone. <e> <a> down <e> <u> Gone. <e> "
        "<a> down <e> <u> The number is 1. <e> <a> down <e> <u> The number is 0. <e> "
        "<a> 4[lift off <e>]",
        rewards=[0, 1],
        shares=[8 / 11, 3 / 11],
    )
    episode = played[0]
    assert [m.text for m in episode.messages if m.role == "user"] == [
        *(f"The number is {n}." for n in (4, 3, 2, 1, 0)),
        "Lift-off!",
    ]
    assert [turn.sequence for turn in episode.turns] == [0, 0, 0, 0, 1]


def test_drop_as_few_as_need_be():
    # 11 + 36 = 47: one observation less is 44, and 3 are left for the reply.
    agent = Act(context=ContextPolicy(when_full="drop", note="Gone.", keep=1.0))
    played = play(agent, [*["down"] * 4, "lift off"], number=4, response=36, reply=3)
    check(
        played,
        f"{OPEN.format(4)} <a> 0[down <e>] <u> The number is 3. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> <a> 3[down <e>]",
        f"{OPEN.format(4)} <a> down <e> <u> Gone. <e> <a> down <e> <u> The number is 2. <e> "
        "<a> down <e> <u> The number is 1. <e> <a> down <e> <u> The number is 0. <e> "
        "<a> 4[lift off <e>]",
        rewards=[0, 1],
        shares=[8 / 11, 3 / 11],
    )


def test_drop_ends_where_nothing_is_left_to_drop():
    # 11 + 20 = 31. The third prompt has 29, and with one observation less 26. The fourth has 35,
    # with one more less 32, and there is no other.
    played = play(Act(context=DROP), ["down"] * 3, number=4, response=20, reply=3)
    check(
        played,
        f"{OPEN.format(4)} <a> 0[down <e>] <u> The number is 3. <e> <a> 1[down <e>]",
        f"{OPEN.format(4)} <a> down <e> <u> Gone. <e> <a> down <e> <u> The number is 2. <e> "
        "<a> 2[down <e>]",
        rewards=[0, 0],
        shares=[4 / 6, 2 / 6],
    )
    assert played[0].ending is Ending.OUT_OF_TOKENS
    assert played[0].final_ids == (), "what would come next is a context of its own"


def test_summarise():
    # After k replies there are 4 + 9 k tokens. The next observation, a reply and the request are 13
    # more; the reply and the summary may take 3 each. For k = 3 that is 50, of 11 + 34 = 45.
    replies = ["down", "down", "down", "so far", "down", "lift off"]
    played = play(Act(context=SUMMARISE), replies, number=4, response=34, reply=3)
    check(
        played,
        f"{OPEN.format(4)} <a> 0[down <e>] <u> The number is 3. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> Sum up. <e> <a> 3[so far <e>]",
        f"{OPEN.format(4)} <u> Before: so far <e> <u> The number is 1. <e> <a> 4[down <e>] "
        "<u> The number is 0. <e> <a> 5[lift off <e>]",
        rewards=[0, 1],
        shares=[9 / 14, 5 / 14],
    )
    episode = played[0]
    assert [turn.rounds for turn in episode.turns] == [1, 1, 1, 0, 1, 1]
    assert [m.text for m in episode.messages if m.role == "user"] == [
        *(f"The number is {n}." for n in (4, 3, 2)),
        "Sum up.",
        *(f"The number is {n}." for n in (1, 0)),
        "Lift-off!",
    ]


def test_summarise_ends_where_the_fresh_context_is_full():
    # 11 + 22 = 33. Already after the first reply 13 + 13 + 6 is 32, which fits; after the second,
    # 22 + 13 + 6 does not. The fresh context has 22; after its reply 24 + 13 + 6 is too much again,
    # and so on: each summary is followed by an action, until the rounds run out.
    replies = ["down", "down", "so far", "wait", "so far", "wait", "so far", "wait"]
    played = play(Act(context=SUMMARISE), replies, number=4, response=22, reply=3, max_rounds=5)
    fresh = f"{OPEN.format(4)} <u> Before: so far <e>"
    check(
        played,
        f"{OPEN.format(4)} <a> 0[down <e>] <u> The number is 3. <e> <a> 1[down <e>] "
        "<u> Sum up. <e> <a> 2[so far <e>]",
        f"{fresh} <u> The number is 2. <e> <a> 3[wait <e>] <u> Sum up. <e> <a> 4[so far <e>]",
        f"{fresh} <u> What is that? <e> <a> 5[wait <e>] <u> Sum up. <e> <a> 6[so far <e>]",
        f"{fresh} <u> What is that? <e> <a> 7[wait <e>] <u> What is that? <e> <a>",
        rewards=[0] * 4,
        shares=[7 / 19, 5 / 19, 5 / 19, 2 / 19],
    )
    assert played[0].ending is Ending.OUT_OF_ROUNDS
    # 11 + 12 = 23: after the first reply the request makes 18, and no summary of 6 fits. So the
    # second prompt, of 20, is answered, and the third does not fit: as with `stop`.
    played = play(Act(context=SUMMARISE), ["down", "down"], number=4, response=12, reply=6)
    assert [turn.rounds for turn in played[0].turns] == [1, 1]
    assert played[0].ending is Ending.OUT_OF_TOKENS


PLANS = PlanAct(plan_request="Plan.", go="Go.", revise_request="Again.")


def test_plan_act():
    agent = PlanAct(plan_request="Plan.", go="Go.", revise_request="Again.", revise_every=2)
    played = play(agent, ["down lift", "down", "wait", "lift off", "lift off"], number=1)
    check(
        played,
        f"{OPEN.format(1)} <u> Plan. <e> <a> 0[down lift <e>] <u> Go. <e> <a> 1[down <e>] "
        "<u> The number is 0. <e> <a> 2[wait <e>] <u> What is that? <e> "
        "<u> Again. <e> <a> 3[lift off <e>] <u> Go. <e> <a> 4[lift off <e>]",
        rewards=[1],
        shares=[1],
    )
    assert [turn.rounds for turn in played[0].turns] == [0, 1, 1, 0, 1]
    assert [turn.action for turn in played[0].turns] == [None, "down", "wait", None, "lift off"]


def test_plan_act_plans_anew_after_bad_turns():
    # The second and third `wait` meet an answer that is known: two bad turns in a row.
    agent = PlanAct(
        plan_request="Plan.", go="Go.", revise_request="Again.", revise_after_failures=2
    )
    played = play(agent, ["down", "wait", "wait", "wait", "lift off", "down", "wait"], number=1,
                  max_rounds=5)  # fmt: skip
    check(
        played,
        f"{OPEN.format(1)} <u> Plan. <e> <a> 0[down <e>] <u> Go. <e> <a> 1[wait <e>] "
        "<u> What is that? <e> <a> 2[wait <e>] <u> What is that? <e> <a> 3[wait <e>] "
        "<u> What is that? <e> <u> Again. <e> <a> 4[lift off <e>] <u> Go. <e> <a> 5[down <e>] "
        "<u> The number is 0. <e> <a> 6[wait <e>] <u> What is that? <e> <a>",
        rewards=[0],
        shares=[1],
    )
    assert played[0].ending is Ending.OUT_OF_ROUNDS


def test_plan_act_keeps_its_plan_in_a_summary():
    # Opening 10, request 3, reply 1 + 2, `Go.` 3 and 1: the first action's prompt has 20 tokens.
    # After k actions there are 13 + 9 k; 13 + 6 more are too much for k = 2 and 14 + 35 = 49.
    agent = PlanAct(context=SUMMARISE, plan_request="Plan.", go="Go.", heading="Plan:")
    replies = ["down", "down", "down", "so far", "down", "lift off"]
    played = play(agent, replies, number=3, response=35, reply=3)
    check(
        played,
        f"{OPEN.format(3)} <u> Plan. <e> <a> 0[down <e>] <u> Go. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> Sum up. <e> <a> 3[so far <e>]",
        f"{OPEN.format(3)} <u> Plan: down <e> <u> Before: so far <e> <u> The number is 1. <e> "
        "<a> 4[down <e>] <u> The number is 0. <e> <a> 5[lift off <e>]",
        rewards=[0, 1],
        shares=[9 / 14, 5 / 14],
    )


REFLECT = Reflect(request="Why.", heading="Notes:", loop_request="Loop.", go="Go.")


def test_reflect():
    replies = ["lift off", "too soon", "down", "lift off"]
    played = play(REFLECT, replies, number=1)
    check(
        played,
        f"{OPEN.format(1)} <a> 0[lift off <e>] <u> Too early. <e> <u> Why. <e> <a> 1[too soon <e>]",
        "<s> Count. Reply. <e> <u> Notes: too soon <e> <u> The number is 1. <e> <a> 2[down <e>] "
        "<u> The number is 0. <e> <a> 3[lift off <e>]",
        rewards=[0, 1],
        shares=[6 / 11, 5 / 11],
    )
    episode = played[0]
    assert (episode.success, episode.retries, episode.success_best) == (False, (True,), True)
    assert [turn.attempt for turn in episode.turns] == [1, 2, 2, 2]
    assert [turn.rounds for turn in episode.turns] == [1, 0, 1, 1]
    assert [m.text for m in episode.messages if m.role == "user"] == [
        "The number is 1.",
        "Too early.",
        "Why.",
        "The number is 1.",
        "The number is 0.",
        "Lift-off!",
    ]


def test_reflect_shares_one_budget_of_rounds():
    played = play(
        REFLECT, ["lift off", "too soon", "lift off", "so far", "down"], number=2, max_rounds=3
    )
    check(
        played,
        f"{OPEN.format(2)} <a> 0[lift off <e>] <u> Too early. <e> <u> Why. <e> <a> 1[too soon <e>]",
        "<s> Count. Reply. <e> <u> Notes: too soon <e> <u> The number is 2. <e> "
        "<a> 2[lift off <e>] <u> Too early. <e> <u> Why. <e> <a> 3[so far <e>]",
        "<s> Count. Reply. <e> <u> Notes: too soon so far <e> <u> The number is 2. <e> "
        "<a> 4[down <e>] <u> The number is 1. <e> <a>",
        rewards=[0, 0, 0],
        shares=[6 / 14, 6 / 14, 2 / 14],
    )
    assert played[0].ending is Ending.OUT_OF_ROUNDS
    assert (played[0].success, played[0].retries) == (False, (False, False))


def test_reflect_within_an_attempt_that_goes_in_circles():
    replies = ["wait", "wait", "wait", "so far", "down", "lift off"]
    played = play(REFLECT, replies, number=1)
    check(
        played,
        f"{OPEN.format(1)} <a> 0[wait <e>] <u> What is that? <e> <a> 1[wait <e>] "
        "<u> What is that? <e> <a> 2[wait <e>] <u> What is that? <e> <u> Loop. <e> <a> "
        "3[so far <e>] <u> Go. <e> <a> 4[down <e>] <u> The number is 0. <e> <a> 5[lift off <e>]",
        rewards=[1],
        shares=[1],
    )
    assert played[0].success
    assert {turn.attempt for turn in played[0].turns} == {1}


def think(*answers):
    return [f"<think> hm </think> {answer}" for answer in answers]


def test_drop_under_a_template_that_rewrites_history():
    # Every turn begins a fresh context by itself, without the thinking of those before. The fifth
    # prompt would have 47 tokens of 11 + 36, and has 41 without two observations.
    replies = think("down", "down", "down", "down", "lift off")
    played = play(
        React(context=DROP), replies, number=4, response=36, reply=6,
        template=WORDS_WITHOUT_THINKING,
    )  # fmt: skip
    said = "[<think> hm </think> down <e>]"
    first, down = OPEN.format(4), "<a> down <e>"
    check(
        played,
        f"{first} <a> 0{said}",
        f"{first} {down} <u> The number is 3. <e> <a> 1{said}",
        f"{first} {down} <u> The number is 3. <e> {down} <u> The number is 2. <e> <a> 2{said}",
        f"{first} {down} <u> The number is 3. <e> {down} <u> The number is 2. <e> {down} "
        f"<u> The number is 1. <e> <a> 3{said}",
        f"{first} {down} <u> Gone. <e> {down} <u> Gone. <e> {down} <u> The number is 1. <e> {down} "
        "<u> The number is 0. <e> <a> 4[<think> hm </think> lift off <e>]",
        rewards=[0, 0, 0, 0, 1],
        shares=[5 / 26, 5 / 26, 5 / 26, 5 / 26, 6 / 26],
    )


def test_plan_and_reflection_under_a_template_that_rewrites_history():
    played = play(PLANS, think("down", "lift off"), number=1, template=WORDS_WITHOUT_THINKING)
    check(
        played,
        f"{OPEN.format(1)} <u> Plan. <e> <a> 0[<think> hm </think> down <e>]",
        f"{OPEN.format(1)} <u> Plan. <e> <a> down <e> <u> Go. <e> <a> "
        "1[<think> hm </think> lift off <e>]",
        rewards=[0, 0],
        shares=[5 / 11, 6 / 11],
    )
    replies = think("lift off", "too soon", "down", "lift off")
    played = play(REFLECT, replies, number=1, template=WORDS_WITHOUT_THINKING)
    notes = "<s> Count. Reply. <e> <u> Notes: too soon <e> <u> The number is 1. <e>"
    check(
        played,
        f"{OPEN.format(1)} <a> 0[<think> hm </think> lift off <e>]",
        f"{OPEN.format(1)} <a> lift off <e> <u> Too early. <e> <u> Why. <e> <a> "
        "1[<think> hm </think> too soon <e>]",
        f"{notes} <a> 2[<think> hm </think> down <e>]",
        f"{notes} <a> down <e> <u> The number is 0. <e> <a> 3[<think> hm </think> lift off <e>]",
        rewards=[0, 0, 0, 1],
        shares=[6 / 23, 6 / 23, 5 / 23, 6 / 23],
    )
