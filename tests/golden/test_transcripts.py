"""What is trained of an episode, word by word: acting and reasoning, under every context policy."""

import numpy as np
import pytest

from agentgym_core.agents.act import Act
from agentgym_core.agents.context import ContextPolicy
from agentgym_core.agents.react import React
from agentgym_core.batching import token_weights
from agentgym_core.testing.tokenizers import WORDS_WITHOUT_THINKING
from agentgym_core.types import Ending

from .transcripts import DROP, OPEN, SUMMARISE, check, play, think


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
