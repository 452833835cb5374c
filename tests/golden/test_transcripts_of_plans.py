"""The same for agents that plan and that reflect."""

from agentgym_core.agents.plan_act import PlanAct
from agentgym_core.agents.reflect import Reflect
from agentgym_core.testing.tokenizers import WORDS_WITHOUT_THINKING
from agentgym_core.types import Ending

from .transcripts import DROP, OPEN, SUMMARISE, check, play, think

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


def test_plan_act_stops_where_the_context_is_full():
    # The third action's prompt has 13 + 9 x 2 + 7 = 38 tokens, of 14 + 24: none is left to reply.
    played = play(PLANS, ["down"] * 3, number=3, response=24, reply=3)
    check(
        played,
        f"{OPEN.format(3)} <u> Plan. <e> <a> 0[down <e>] <u> Go. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> <a>",
        rewards=[0],
        shares=[1],
    )
    assert played[0].ending is Ending.OUT_OF_TOKENS


def test_plan_act_keeps_its_plan_where_observations_are_dropped():
    # The fourth action's prompt would have 13 + 9 x 3 + 7 = 47 tokens, of 14 + 33, and has 44
    # without the older one of two observations: the reply of at most 3 fits.
    agent = PlanAct(context=DROP, plan_request="Plan.", go="Go.")
    played = play(agent, [*["down"] * 4, "lift off"], number=3, response=33, reply=3)
    check(
        played,
        f"{OPEN.format(3)} <u> Plan. <e> <a> 0[down <e>] <u> Go. <e> <a> 1[down <e>] "
        "<u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> <a> 3[down <e>]",
        f"{OPEN.format(3)} <u> Plan. <e> <a> down <e> <u> Go. <e> <a> down <e> <u> Gone. <e> "
        "<a> down <e> <u> The number is 1. <e> <a> down <e> <u> The number is 0. <e> "
        "<a> 4[lift off <e>]",
        rewards=[0, 1],
        shares=[8 / 11, 3 / 11],
    )


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


NOTES = "<s> Count. Reply. <e> <u> Notes: too soon <e>"


def reflect(context, **keys):
    return Reflect(context=context, request="Why.", heading="Notes:", loop_after=0, **keys)


def test_reflect_stops_where_the_context_of_an_attempt_is_full():
    # 11 + 14 = 25. The reflection's prompt has 22. The second attempt has a context of its own:
    # prompts of 16 and 25 tokens, and no room after that.
    played = play(reflect("stop"), ["lift off", "too soon", "down"], number=1, response=14, reply=3)
    check(
        played,
        f"{OPEN.format(1)} <a> 0[lift off <e>] <u> Too early. <e> <u> Why. <e> <a> 1[too soon <e>]",
        f"{NOTES} <u> The number is 1. <e> <a> 2[down <e>] <u> The number is 0. <e> <a>",
        rewards=[0, 0],
        shares=[6 / 8, 2 / 8],
    )
    episode = played[0]
    assert episode.ending is Ending.OUT_OF_TOKENS
    assert (episode.success, episode.retries) == (False, (False,))


def test_reflect_keeps_its_reflection_where_observations_are_dropped():
    # The second attempt's prompts have 16, 25 and 34 tokens, and 34 + 3 is more than 11 + 23.
    # Without the older observation the last has 31.
    replies = ["lift off", "too soon", "down", "down", "lift off"]
    played = play(reflect(DROP), replies, number=2, response=23, reply=3)
    check(
        played,
        f"{OPEN.format(2)} <a> 0[lift off <e>] <u> Too early. <e> <u> Why. <e> <a> 1[too soon <e>]",
        f"{NOTES} <u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> "
        "<a> 3[down <e>]",
        f"{NOTES} <u> The number is 2. <e> <a> down <e> <u> Gone. <e> <a> down <e> "
        "<u> The number is 0. <e> <a> 4[lift off <e>]",
        rewards=[0, 0, 1],
        shares=[6 / 13, 4 / 13, 3 / 13],
    )
    assert (played[0].success, played[0].retries) == (False, (True,))


def test_reflect_keeps_its_reflection_in_a_summary():
    # In the second attempt there are 9 + 9 k tokens after k replies. The next observation, a reply
    # and the request are 13 more; the reply and the summary may take 3 each. For k = 2 that is 46,
    # of 11 + 30 = 41.
    replies = ["lift off", "too soon", "down", "down", "so far", "lift off"]
    played = play(reflect(SUMMARISE), replies, number=2, response=30, reply=3)
    check(
        played,
        f"{OPEN.format(2)} <a> 0[lift off <e>] <u> Too early. <e> <u> Why. <e> <a> 1[too soon <e>]",
        f"{NOTES} <u> The number is 2. <e> <a> 2[down <e>] <u> The number is 1. <e> "
        "<a> 3[down <e>] <u> Sum up. <e> <a> 4[so far <e>]",
        f"{NOTES} <u> The number is 2. <e> <u> Before: so far <e> <u> The number is 0. <e> "
        "<a> 5[lift off <e>]",
        rewards=[0, 0, 1],
        shares=[6 / 16, 7 / 16, 3 / 16],
    )
    assert [turn.rounds for turn in played[0].turns] == [1, 0, 1, 1, 0, 1]


def test_reflect_sums_up_before_it_reflects_where_both_do_not_fit():
    # After the first reply there are 14 tokens. To see the answer, reply and sum up is 11 + 6 more,
    # which 11 + 21 = 32 holds; with the request to reflect it is 3 more than that.
    replies = ["lift off", "so far", "too soon", "lift off"]
    played = play(reflect(SUMMARISE, attempts=2), replies, number=2, response=21, reply=3)
    check(
        played,
        f"{OPEN.format(2)} <a> 0[lift off <e>] <u> Too early. <e> <u> Sum up. <e> "
        "<a> 1[so far <e>]",
        f"{OPEN.format(2)} <u> Before: so far <e> <u> Too early. <e> <u> Why. <e> "
        "<a> 2[too soon <e>]",
        f"{NOTES} <u> The number is 2. <e> <a> 3[lift off <e>]",
        rewards=[0, 0, 0],
        shares=[6 / 12, 3 / 12, 3 / 12],
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
