import asyncio

import attrs
import pytest

from agentgym_core.agents.act import Act
from agentgym_core.agents.react import React
from agentgym_core.handler import ModelPolicy
from agentgym_core.protocols import Agent
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_episode, play_groups
from agentgym_core.settings import Limits
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import CHATML, DROPS_THINKING, byte_tokenizer
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Ending, Message, Observation, Sampling
from agentgym_core.wording import origin

ROOMY = Limits(max_prompt_tokens=1000, max_response_tokens=2000, max_tokens=60)
COUNT = {1: ["down", "lift off"], 2: ["down", "down", "lift off"]}


def make_table(replies, *, template=CHATML, limits=ROOMY, agent=None, max_model_len=None, **world):
    """A table whose policy says `replies`, one after the other, in each episode."""
    renderer = Renderer(byte_tokenizer(template))
    said: dict[str, int] = {}

    def script(request):
        number = said.setdefault(request.key, 0)
        said[request.key] += 1
        reply = replies(number) if callable(replies) else replies[number]
        if isinstance(reply, Exception):
            raise reply
        return renderer.reply_ids(Message("assistant", reply))

    sampler = ScriptedSampler(script=script, max_model_len=max_model_len, version=7)
    return Table(
        environments={"countdown": Countdown(**world)},
        agent=agent or Act(),
        policy=ModelPolicy(renderer=renderer, sampler=sampler, limits=limits),
        max_retries=1,
    )


def order(number=2, *, num=1, max_rounds=10):
    task = Countdown().tasks("train")[number - 1]
    return Attempts(
        environment="countdown",
        task=task,
        num=num,
        max_rounds=max_rounds,
        sampling=Sampling(),
        seed=11,
    )


def play(table, attempts):
    return asyncio.run(play_episode(table, attempts, 0))


def actions(*texts):
    return [f"Action: {text}" for text in texts]


def test_an_episode_holds_what_was_sampled_and_what_came_of_it():
    table = make_table(actions("down", "what", "down", "lift off"))
    episode = play(table, order())
    assert episode.ending is Ending.DONE
    assert episode.success
    assert episode.reward == 1.0
    assert [turn.action for turn in episode.turns] == ["down", "what", "down", "lift off"]
    assert [turn.reward for turn in episode.turns] == [0, 0, 0, 1]
    assert [turn.rounds for turn in episode.turns] == [1, 1, 1, 1]
    assert episode.turns[1].observation == "What is that?"
    assert dict(episode.turns[0].rewards) == {"progress": 0.1}
    assert {turn.policy_version for turn in episode.turns} == {7}
    requests = table.policy.sampler.requests
    context = ()
    for turn, request in zip(episode.turns, requests, strict=True):
        context += turn.prompt_ids
        assert context == request.token_ids, "the record is what the engine saw"
        context += turn.token_ids
        assert turn.logprobs == tuple(-float(i + 1) for i in range(len(turn.token_ids)))
    assert len({request.seed for request in requests}) == 4
    assert table.policy.sampler.released == [requests[0].key]
    assert [m.role for m in episode.messages] == ["system"] + ["user", "assistant"] * 4 + ["user"]


def test_agents_ask_for_a_thought_or_not():
    reply = "Thought: one more, Action: not this\nAction: lift off"
    for agent, word in ((React(), "Thought:"), (Act(), "nothing else")):
        episode = play(make_table([reply], agent=agent), order())
        assert word in episode.messages[0].text
        assert episode.messages[0].text.startswith("Count down, then lift off.")
        assert episode.turns[0].action == "lift off"


def test_the_horizon_cuts_and_the_last_reward_still_counts():
    episode = play(make_table(actions(*COUNT[2])), order(max_rounds=2))
    assert (episode.ending, episode.num_rounds) == (Ending.OUT_OF_ROUNDS, 2)
    episode = play(make_table(actions(*COUNT[2])), order(max_rounds=3))
    assert (episode.ending, episode.success, episode.reward) == (Ending.DONE, True, 1.0)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("hello", "Your reply named no action"),
        ("Action: down\nAction: lift off", "Your reply named 2 actions"),
        ("x" * 80, "cut off because it was too long"),
    ],
)
def test_a_reply_without_one_action_costs_a_round_and_is_explained(reply, says):
    episode = play(make_table([reply, *actions(*COUNT[2])]), order(max_rounds=4))
    first = episode.turns[0]
    assert says in first.observation
    assert (first.action, first.format_error, first.rounds) == (None, True, 1)
    assert episode.success, "the world did not move"


def test_a_first_prompt_that_does_not_fit_ends_the_episode_before_the_engine_is_asked():
    limits = attrs.evolve(ROOMY, max_prompt_tokens=20)
    table = make_table(actions("down"), limits=limits)
    episode = play(table, order())
    assert episode.ending is Ending.OUT_OF_TOKENS
    assert episode.turns == ()
    assert table.policy.sampler.requests == []


@pytest.mark.parametrize("by_engine", [False, True])
def test_a_full_context_ends_the_episode_with_every_sampled_token_kept(by_engine):
    whole = play(make_table(actions(*COUNT[2])), order())
    first = len(whole.turns[0].prompt_ids)
    used = [len(t.token_ids) + (len(t.prompt_ids) if i else 0) for i, t in enumerate(whole.turns)]
    for budget in range(20, sum(used) + 2):
        limits = Limits(max_prompt_tokens=1000, max_response_tokens=budget, max_tokens=20)
        table = make_table(
            actions(*COUNT[2]),
            limits=attrs.evolve(limits, max_response_tokens=10_000) if by_engine else limits,
            max_model_len=first + budget if by_engine else None,
        )
        episode = play(table, order())
        tokens = sum(len(t.prompt_ids) + len(t.token_ids) for t in episode.turns)
        assert tokens <= first + budget
        for turn in episode.turns:
            assert len(turn.token_ids) == len(turn.logprobs) > 0
        assert episode.success == (budget >= sum(used))
        assert episode.ending is (Ending.DONE if episode.success else Ending.OUT_OF_TOKENS)


def test_a_template_that_rewrites_history_gives_sequences_that_the_engine_saw():
    replies = [f"<think>hm</think>Action: {text}" for text in COUNT[2]]
    table = make_table(replies, template=DROPS_THINKING)
    episode = play(table, order())
    assert episode.success
    assert [turn.sequence for turn in episode.turns] == [0, 1, 2]
    for turn, request in zip(episode.turns, table.policy.sampler.requests, strict=True):
        assert turn.prompt_ids == request.token_ids


@pytest.mark.parametrize(
    ("fault", "ending", "error"),
    [
        ("open", Ending.ENVIRONMENT_FAILED, "open: ConnectionError: no launch pad"),
        ("reset", Ending.ENVIRONMENT_FAILED, "ConnectionError: the pad is on fire"),
        ("step", Ending.ENVIRONMENT_FAILED, "ConnectionError: the line is dead"),
        ("nan", Ending.INVALID_REWARD, "task countdown_1: reward is nan"),
    ],
)
def test_a_failing_environment_is_no_reward(fault, ending, error):
    episode = play(make_table(actions("lift off"), fault=fault), order(1))
    whose = f"{origin(Countdown)}{', ' if fault == 'nan' else ': '}"
    assert (episode.ending, episode.error) == (ending, whose + error)
    assert (episode.reward, episode.success) == (0, False)
    assert CountdownSession.open_sessions == 0


def test_a_failing_close_does_not_spoil_the_episode():
    assert play(make_table(actions("lift off"), fault="close"), order(1)).ending is Ending.DONE


def test_failing_engines_and_agents_are_told_apart():
    episode = play(make_table([MemoryError("full")]), order())
    assert (episode.ending, episode.error) == (
        Ending.ENGINE_FAILED,
        f"{origin(ScriptedSampler)}: MemoryError: full",
    )

    @attrs.frozen(kw_only=True)
    class Confused(Agent):
        async def play(self, task, session, handler):
            await session.reset()
            return 1 / 0

    episode = play(make_table([], agent=Confused()), order())
    assert episode.ending is Ending.AGENT_FAILED
    assert episode.error == f"Confused (module {__name__}): ZeroDivisionError: division by zero"


def test_an_agent_cannot_overrun_the_horizon_and_may_stop_early():
    @attrs.frozen(kw_only=True)
    class Greedy(Agent):
        async def play(self, task, session, handler):
            handler.add((await session.reset()).messages)
            while True:
                await session.act(await handler.reply(), action="down")

    episode = play(make_table(lambda _: "no action at all", agent=Greedy()), order(max_rounds=3))
    assert (episode.ending, episode.num_rounds) == (Ending.OUT_OF_ROUNDS, 3)

    @attrs.frozen(kw_only=True)
    class Shy(Agent):
        async def play(self, task, session, handler):
            await session.reset()

    assert play(make_table([], agent=Shy()), order()).ending is Ending.AGENT_STOPPED


def test_failed_episodes_are_retried_with_the_same_seed_then_dropped():
    table = make_table(lambda _: "Action: lift off", fault="reset")
    groups = asyncio.run(play_groups(table, [order(1, num=3), order(2, num=3)], 2))
    assert [len(group.episodes) for group in groups] == [0, 3]
    assert [group.num_dropped for group in groups] == [3, 0]
    assert CountdownSession.open_sessions == 0

    tries = []
    table = make_table(lambda number: tries.append(number) or "Action: lift off")
    flaky = iter([ConnectionError("once")])

    def script(request, inner=table.policy.sampler.script):
        for error in flaky:
            raise error
        return inner(request)

    table.policy.sampler.script = script
    (group,) = asyncio.run(play_groups(table, [order(2)], 1))
    assert group.num_dropped == 0
    assert group.episodes[0].ending is Ending.DONE
    first, second = table.policy.sampler.requests
    assert first == second


def test_siblings_share_the_world_and_differ_in_their_draws():
    table = make_table(lambda _: "Action: lift off")
    asyncio.run(play_groups(table, [order(2, num=4)], 8))
    seeds = {request.seed for request in table.policy.sampler.requests}
    assert len(seeds) == 4


def test_concurrency_is_bounded():
    running = most = 0

    async def slow(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return await complete(request)

    table = make_table(lambda _: "Action: lift off")
    complete = table.policy.sampler.complete
    table.policy.sampler.__class__ = type("Slow", (ScriptedSampler,), {"complete": None})
    table.policy.sampler.__class__.complete = staticmethod(slow)
    asyncio.run(play_groups(table, [order(n, num=4) for n in (1, 2, 3)], 5))
    assert most == 5


def test_cancelling_leaves_nothing_behind():
    async def start_and_cancel():
        table = make_table(lambda _: "Action: down", fault="hang")
        playing = asyncio.ensure_future(play_groups(table, [order(1, num=8)], 4))
        await asyncio.sleep(0.02)
        assert CountdownSession.open_sessions == 4
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert CountdownSession.open_sessions == 0
        assert len(asyncio.all_tasks()) == 1
        assert len(table.policy.sampler.released) == 4

    asyncio.run(start_and_cancel())


@pytest.mark.parametrize("call", ["open", "reset", "step"])
def test_a_call_that_takes_too_long_is_a_failure_of_the_environment(monkeypatch, call):
    async def hang(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(Countdown if call == "open" else CountdownSession, call, hang)
    table = attrs.evolve(make_table(actions("lift off")), max_call_seconds=0.02)
    episode = play(table, order())
    assert episode.ending is Ending.ENVIRONMENT_FAILED
    assert (
        f"TimeoutError: it did not answer {call} within limits.max_call_seconds=0.02"
        in episode.error
    )
    assert episode.error.startswith(origin(Countdown()))
    assert CountdownSession.open_sessions == 0


def test_a_close_that_takes_too_long_does_not_spoil_the_episode(monkeypatch, caplog):
    async def hang(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(CountdownSession, "close", hang)
    table = attrs.evolve(make_table(actions("lift off")), max_call_seconds=0.02)
    assert play(table, order()).ending is Ending.DONE
    assert "it did not answer close within limits.max_call_seconds=0.02" in caplog.text
    CountdownSession.open_sessions -= 1


def test_tries_that_failed_are_told_by_their_endings():
    table = make_table(lambda _: "Action: lift off", fault="reset")
    (group,) = asyncio.run(play_groups(table, [order(1)], 2))
    assert [e.failed_tries for e in group.failures] == [(Ending.ENVIRONMENT_FAILED,)]


def test_an_action_format_that_raises_is_the_environments_failure(monkeypatch):
    def fail(self, text):
        raise KeyError("verb")

    monkeypatch.setattr(type(Countdown().action_format), "parse", fail)
    episode = play(make_table(actions("down")), order())
    assert episode.ending is Ending.ENVIRONMENT_FAILED
    assert "action_format: KeyError: 'verb'" in episode.error


def test_what_waits_is_known_while_it_waits(monkeypatch):
    seen = []

    async def look(self, action):
        seen.append(table.progress.report())
        return Observation(messages="", terminated=True)

    monkeypatch.setattr(CountdownSession, "step", look)
    table = make_table(actions("down"))
    play(table, order())
    assert seen == ["1 episode waits for Countdown.step (task countdown_2)"]
    assert table.progress.report() == "nothing is being waited for"
