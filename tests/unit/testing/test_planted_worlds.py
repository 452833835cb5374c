"""Suites of worlds and agents find the faults that they are there for."""

import asyncio
import importlib
import itertools
import time

import attrs
import pytest

from agentgym_core.agents.act import Act
from agentgym_core.errors import EpisodeEnded
from agentgym_core.protocols import Agent
from agentgym_core.testing import AgentConformance, EnvironmentConformance
from agentgym_core.testing.worlds import Countdown, CountdownSession

from .conftest import class_name, outcome

COUNTER = itertools.count()
BOARD = {"number": 0}


class SharedSession(CountdownSession):
    """All sessions count down the same number."""

    number = property(lambda self: BOARD["number"], lambda self, value: BOARD.update(number=value))


class DiceSession(CountdownSession):
    async def reset(self, task, seed):
        observation = await super().reset(task, seed)
        return attrs.evolve(observation, messages=f"{observation.text} {next(COUNTER)}")


class DeafSession(CountdownSession):
    async def step(self, action):
        if not action.isascii():
            raise ValueError("what?")
        return await super().step(action)


class NaNSession(CountdownSession):
    async def step(self, action):
        return attrs.evolve(await super().step(action), reward=float("nan"))


@attrs.frozen(kw_only=True)
class World(Countdown):
    session: type = CountdownSession

    async def open(self):
        return self.session(self.fault)


@attrs.frozen(kw_only=True)
class Somewhere(Countdown):
    runs_in = "the cloud"


@attrs.frozen(kw_only=True)
class HidesASplit(Countdown):
    splits = ("train",)


@attrs.frozen(kw_only=True)
class SameIds(Countdown):
    def tasks(self, split):
        return [attrs.evolve(task, id="countdown_1") for task in super().tasks(split)]


@attrs.frozen(kw_only=True)
class NeverActs(Agent):
    async def play(self, task, session, handler):
        await session.reset()


@attrs.frozen(kw_only=True)
class Blind(Act):
    """Does not show the policy what the world says."""

    async def play(self, task, session, handler):
        await session.reset()
        handler.add("Go on.")
        while not session.ended:
            await session.act(await handler.reply())
            handler.add("Go on.")


@attrs.frozen(kw_only=True)
class GivesUpOnNonsense(Act):
    async def play(self, task, session, handler):
        handler.add(await session.reset())
        while not session.ended:
            reply = await handler.reply()
            action = reply.text.split("Action: ")[1]
            handler.add(await session.act(reply, action))


class Leftover(CountdownSession):
    plays = 0

    async def reset(self, task, seed):
        seen = await super().reset(task, seed)
        self.plays += 1
        return attrs.evolve(seen, messages=seen.text + " Again!" * (self.plays > 1))


class CloseOnce(CountdownSession):
    async def close(self):
        if self.closed:
            raise ValueError("closed")
        await super().close()


class Blocks(CountdownSession):
    async def step(self, action):
        time.sleep(1.1)  # noqa: ASYNC251
        return await super().step(action)


class LostExpert(CountdownSession):
    async def expert_action(self):
        return "lift off"


PLAYED = []


@attrs.frozen(kw_only=True)
class TupleData(Countdown):
    def tasks(self, split):
        return [attrs.evolve(t, data={**t.data, "pair": (1, 2)}) for t in super().tasks(split)]


@attrs.frozen(kw_only=True)
class Remembers(Act):
    async def play(self, task, session, handler):
        PLAYED.append(task.id)
        await asyncio.sleep(0)
        handler.add(f"Played {len(PLAYED)}")
        await super().play(task, session, handler)


@attrs.frozen(kw_only=True)
class SwallowsCancel(Act):
    async def play(self, task, session, handler):
        try:
            await super().play(task, session, handler)
        except BaseException:
            return


@attrs.frozen(kw_only=True)
class IgnoresTheHorizon(Act):
    async def play(self, task, session, handler):
        handler.add(await session.reset())
        for _ in range(5):
            session.max_rounds += 1
            handler.add(await session.act(await handler.reply()))


@attrs.frozen(kw_only=True)
class FailsWhereTokensEnd(Act):
    async def play(self, task, session, handler):
        try:
            await super().play(task, session, handler)
        except EpisodeEnded as error:
            raise ValueError("no reply") from error


@attrs.frozen(kw_only=True)
class AddsTokens(Act):
    """Puts words into the record that the policy never said."""

    async def play(self, task, session, handler):
        await super().play(task, session, handler)
        last = handler.turns[-1]
        said = last.completion
        more = {"token_ids": (*said.token_ids, 1), "logprobs": (*said.logprobs, -1.0)}
        handler.turns[-1] = attrs.evolve(last, completion=attrs.evolve(said, **more))


@attrs.frozen(kw_only=True)
class DropsATurn(Act):
    async def play(self, task, session, handler):
        await super().play(task, session, handler)
        handler.turns.pop()


@attrs.frozen(kw_only=True)
class PlansByActing(Act):
    """Asks for a plan as for an action, which the expert then gives for nothing."""

    async def play(self, task, session, handler):
        handler.add(await session.reset())
        handler.add("Plan.")
        await handler.reply()
        handler.add("Act.")
        while not session.ended:
            handler.add(await session.act(await handler.reply()))


@attrs.frozen(kw_only=True)
class WaitsForAPlan(Act):
    """Gives up where there are no words, as of an expert."""

    async def play(self, task, session, handler):
        handler.add(await session.reset())
        if await handler.say("Plan.") is None:
            return
        while not session.ended:
            handler.add(await session.act(await handler.reply()))


@attrs.frozen(kw_only=True)
class HidesItsFailure(Act):
    """Begins the task anew behind the session's back."""

    async def play(self, task, session, handler):
        handler.add(await session.reset())
        while not session.ended:
            handler.add(await session.act(await handler.reply()))
            if session.may_try_again:
                session.ending = None
                handler.add(await session._session.reset(task, session.seed))


@attrs.frozen(kw_only=True)
class IsPaidTwice(Act):
    """Tries again, and hides from the record in which attempt it acted."""

    async def play(self, task, session, handler):
        handler.add(await session.reset())
        while not session.ended:
            handler.add(await session.act(await handler.reply()))
            if session.may_try_again:
                handler.add(await session.again())
        session.rounds[:] = [attrs.evolve(round, attempt=9) for round in session.rounds]


class ActsBeforeItBegins(CountdownSession):
    async def step(self, action):
        if not self.under_way:
            await self.reset(TASK, 0)
        return await super().step(action)


class PaysAfterTheEnd(CountdownSession):
    async def step(self, action):
        observation = await super().step(action)
        self.under_way = True
        return observation


TASK = Countdown().tasks("train")[0]


@pytest.mark.parametrize(
    ("suite", "component", "check"),
    [
        (EnvironmentConformance, SameIds(), "test_task_ids_are_unique"),
        (EnvironmentConformance, TupleData(), "test_task_data_is_json"),
        (EnvironmentConformance, Somewhere(), "test_says_where_it_may_run"),
        (EnvironmentConformance, HidesASplit(), "test_says_where_it_may_run"),
        *(
            (EnvironmentConformance, World(session=session), check)
            for session, check in {
                SharedSession: "test_sessions_do_not_see_each_other",
                DiceSession: "test_same_task_and_seed_give_the_same_episode",
                Leftover: "test_a_session_can_begin_again",
                ActsBeforeItBegins: "test_step_before_reset_raises",
                PaysAfterTheEnd: "test_step_after_the_end_raises",
                CloseOnce: "test_close_may_be_called_twice",
                DeafSession: "test_any_text_is_an_action",
                NaNSession: "test_rewards_are_finite_and_endings_make_sense",
                LostExpert: "test_the_expert_succeeds",
                Blocks: "test_does_not_block_the_event_loop",
            }.items()
        ),
        (AgentConformance, NeverActs(), "test_shows_the_world_to_the_policy"),
        (AgentConformance, Blind(), "test_shows_the_world_to_the_policy"),
        (AgentConformance, GivesUpOnNonsense(), "test_survives_what_a_policy_says"),
        (AgentConformance, IgnoresTheHorizon(), "test_ends_within_the_horizon"),
        (AgentConformance, FailsWhereTokensEnd(), "test_ends_when_the_tokens_do"),
        (AgentConformance, AddsTokens(), "test_records_what_was_sampled"),
        (AgentConformance, DropsATurn(), "test_records_what_was_sampled"),
        (AgentConformance, Remembers(), "test_episodes_do_not_see_each_other"),
        (AgentConformance, PlansByActing(), "test_the_expert_acts_in_every_turn"),
        (AgentConformance, WaitsForAPlan(), "test_the_expert_acts_in_every_turn"),
        (AgentConformance, HidesItsFailure(), "test_a_failed_first_attempt_stays_a_failure"),
        (AgentConformance, IsPaidTwice(), "test_a_failed_first_attempt_stays_a_failure"),
        (AgentConformance, SwallowsCancel(), "test_cancelling_leaves_nothing_open"),
    ],
    ids=class_name,
)
def test_a_planted_fault_is_found(suite, component, check):
    assert outcome(suite, component, check) == ({check}, set())


@pytest.mark.parametrize(
    ("suite", "component"),
    [
        (EnvironmentConformance, Countdown()),
        (AgentConformance, Act()),
    ],
    ids=class_name,
)
def test_a_sound_one_passes(suite, component):
    assert outcome(suite, component) == (set(), set())


UNSTABLE = """
import random
import attrs
from agentgym_core.testing.worlds import Countdown

@attrs.frozen(kw_only=True)
class Unstable(Countdown):
    def tasks(self, split):
        tasks = super().tasks(split)
        return {how}
"""


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("hashed", '[attrs.evolve(task, id=f"countdown_{hash(task.id)}") for task in tasks]'),
        ("unordered", "[t for name in {t.id for t in tasks} for t in tasks if t.id == name]"),
        ("unseeded", "random.sample(tasks, len(tasks))"),
    ],
)
def test_tasks_that_differ_between_processes_are_found(name, how, tmp_path, monkeypatch):
    """Of a module that a second process can import, as it can a package's."""
    (tmp_path / f"unstable_{name}.py").write_text(UNSTABLE.format(how=how))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    class Suite(EnvironmentConformance):
        environment = importlib.import_module(f"unstable_{name}").Unstable()

    with pytest.raises(AssertionError, match="tasks differ between processes"):
        Suite().test_tasks_are_the_same_in_every_process()


UNSTABLE_EPISODE = """
import attrs
from agentgym_core.testing.worlds import Countdown, CountdownSession

class Session(CountdownSession):
    async def step(self, action):
        seen = await super().step(action)
        return attrs.evolve(seen, messages=seen.text + " ".join({"one", "two", "three", "four"}))

@attrs.frozen(kw_only=True)
class Unstable(Countdown):
    async def open(self):
        return Session("")
"""


def test_episodes_that_differ_between_processes_are_found(tmp_path, monkeypatch):
    (tmp_path / "unstable_episode.py").write_text(UNSTABLE_EPISODE)
    monkeypatch.syspath_prepend(tmp_path)

    class Suite(EnvironmentConformance):
        environment = importlib.import_module("unstable_episode").Unstable()

    with pytest.raises(AssertionError, match="in another process: do not let it depend on hash"):
        Suite().test_episodes_are_the_same_in_every_process()
