"""The suite of agents."""

import asyncio
import re
from collections.abc import Callable
from typing import ClassVar

import attrs

from agentgym_core.expert import ExpertPolicy
from agentgym_core.handler import ModelPolicy
from agentgym_core.protocols import Agent, Session
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_episode
from agentgym_core.settings import Limits
from agentgym_core.testing.conformance.component import ComponentConformance
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Ending, Episode, Message, Observation, Request, Sampling

Say = Callable[[str], str]
"""The policy's reply to a prompt."""


def plays_well(prompt: str) -> str:
    """What wins, if the prompt shows the last observation."""
    numbers = re.findall(r"The number is (\d+)", prompt)
    return "Action: lift off" if numbers and numbers[-1] == "0" else "Action: down"


@attrs.frozen(kw_only=True)
class _FailsFirst(Countdown):
    """The first lift-off in a session is a failure, though it is paid as a success is."""

    async def open(self) -> Session:
        return _FailsFirstSession("")


class _FailsFirstSession(CountdownSession):
    _has_failed = False

    async def step(self, action: str) -> Observation:
        seen = await super().step(action)
        if not seen.terminated or self._has_failed:
            return seen
        self._has_failed = True
        return attrs.evolve(seen, success=False)


class AgentConformance(ComponentConformance):
    """What training relies on in every agent, tried in the world `Countdown`.

    Example:
        class TestMine(AgentConformance):
            agent = Mine()
    """

    kind: ClassVar[str] = "agent"
    agent: Agent
    deadline_seconds: ClassVar[float] = 20.0

    def test_shows_the_world_to_the_policy(self) -> None:
        """A policy that plays by the last observation succeeds, and is paid."""
        episode, _ = self._play(plays_well)
        assert episode.ending is Ending.DONE, (
            f"the episode ended as {episode.ending.value} {episode.error}: add every observation "
            "to the handler before the next reply"
        )
        assert episode.success, "a policy that plays by the last observation fails"
        assert episode.reward == 1.0, f"the world paid 1, the record holds {episode.reward}"

    def test_ends_within_the_horizon(self) -> None:
        """Also where the policy goes nowhere."""
        for rounds in (1, 3):
            episode, _ = self._play(lambda _: "Action: wait", max_rounds=rounds)
            assert not episode.ending.is_failure, episode.error
            assert episode.num_rounds <= rounds, f"{episode.num_rounds} of {rounds} rounds"

    def test_survives_what_a_policy_says(self) -> None:
        """Replies without an action, with two, empty, or cut at their longest."""
        for reply in ("", "hello", "Action: down\nAction: down", "y" * 200, "Action:"):
            episode, _ = self._play(lambda _, reply=reply: reply, max_rounds=3)
            assert not episode.ending.is_failure, (
                f"the reply {reply[:20]!r} ends the episode as {episode.ending.value}: "
                f"{episode.error}. Let session.act read it, and add what it answers"
            )

    def test_ends_when_the_tokens_do(self) -> None:
        """A conversation outgrows the context; that is no failure."""
        limits = Limits(max_prompt_tokens=1500, max_response_tokens=120, max_tokens=40)
        episode, _ = self._play(lambda _: "Action: wait", max_rounds=50, limits=limits)
        assert not episode.ending.is_failure, f"{episode.ending.value}: {episode.error}"

    def test_records_what_was_sampled(self) -> None:
        """Training is on the very ids that the engine sampled, in their context."""
        episode, sampler = self._play(plays_well)
        assert not episode.ending.is_failure, f"the episode failed: {episode.error}"
        assert len(episode.turns) == len(sampler.requests), "a reply is missing from the record"
        contexts: dict[int, tuple[int, ...]] = {}
        for turn, request in zip(episode.turns, sampler.requests, strict=True):
            context = contexts.get(turn.sequence, ()) + turn.prompt_ids
            assert context == request.token_ids, "a turn's context is not what the engine saw"
            assert turn.token_ids == tuple(sampler.script(request)), "ids were changed"
            contexts[turn.sequence] = context + turn.token_ids

    def test_the_expert_acts_in_every_turn(self) -> None:
        """Demonstrations are played through the agent, by an expert that knows actions alone."""
        table = attrs.evolve(self._table(plays_well)[0], policy=ExpertPolicy())
        episode = self._within_deadline(table, 2, 12)
        assert episode.success, (
            f"the world's expert fails: {episode.ending.value} {episode.error}. Play on where "
            "handler.say returns None"
        )
        idle = [turn.text for turn in episode.turns if not turn.rounds]
        assert not idle, (
            f"the expert's action {idle[0]!r} was not taken: ask with handler.say for what is no "
            "action, such as a plan"
        )

    def test_a_failed_first_attempt_stays_a_failure(self) -> None:
        """An agent may try again, but not so that nobody sees it."""
        episode, _ = self._play(plays_well, world=_FailsFirst())
        assert not episode.ending.is_failure, episode.error
        first = [turn for turn in episode.turns if turn.attempt == 1]
        assert not episode.success, (
            "the first attempt failed, and the record says that it succeeded: try again with "
            "session.again() alone, which keeps its verdict"
        )
        paid = sum(turn.reward for turn in first)
        assert not (episode.retries and paid), (
            f"the first attempt was tried again, and its turns are paid {paid:g}: try again with "
            "session.again() alone, and ask session.may_try_again before"
        )

    def test_episodes_do_not_see_each_other(self) -> None:
        """One agent plays many at once."""
        alone = [self._play(plays_well, number=number)[0] for number in (2, 4)]

        async def together() -> list[Episode]:
            tables = [self._table(plays_well)[0] for _ in alone]
            plays = [
                play_episode(table, _order(number, 12), 0)
                for table, number in zip(tables, (2, 4), strict=True)
            ]
            return list(await asyncio.wait_for(asyncio.gather(*plays), self.deadline_seconds))

        for one, other in zip(alone, asyncio.run(together()), strict=True):
            assert one.messages == other.messages, (
                "an episode changes when another is played beside it: keep nothing in the agent"
            )

    def test_cancelling_leaves_nothing_open(self) -> None:
        """A run that is stopped cancels its episodes."""

        async def cancelled() -> int:
            before = CountdownSession.open_sessions
            table, _ = self._table(plays_well, world=Countdown(fault="hang"))
            playing = asyncio.create_task(play_episode(table, _order(1, 12), 0))
            for _ in range(20):
                await asyncio.sleep(0.001)
            playing.cancel()
            done, _ = await asyncio.wait([playing], timeout=self.deadline_seconds)
            assert done, "the agent goes on when it is cancelled: let CancelledError through"
            assert playing.cancelled(), "the agent swallows CancelledError: let it through"
            return CountdownSession.open_sessions - before

        assert asyncio.run(cancelled()) == 0, "a cancelled episode leaves its session open"

    def _play(
        self,
        say: Say,
        *,
        number: int = 2,
        max_rounds: int = 12,
        limits: Limits | None = None,
        world: Countdown | None = None,
    ) -> tuple[Episode, ScriptedSampler]:
        table, sampler = self._table(say, limits=limits, world=world)
        return self._within_deadline(table, number, max_rounds), sampler

    def _within_deadline(self, table: Table, number: int, max_rounds: int) -> Episode:
        async def play() -> Episode:
            try:
                playing = play_episode(table, _order(number, max_rounds), 0)
                return await asyncio.wait_for(playing, self.deadline_seconds)
            except TimeoutError:
                raise AssertionError(
                    "the episode does not end: leave the loop when session.ended, and catch no "
                    "EpisodeEnded"
                ) from None

        return asyncio.run(play())

    def _table(
        self, say: Say, *, limits: Limits | None = None, world: Countdown | None = None
    ) -> tuple[Table, ScriptedSampler]:
        tokenizer = byte_tokenizer()
        renderer = Renderer(tokenizer)

        def script(request: Request) -> tuple[int, ...]:
            prompt = tokenizer.decode(list(request.token_ids), skip_special_tokens=False)
            return tuple(renderer.reply_ids(Message("assistant", say(prompt))))

        sampler = ScriptedSampler(script=script)
        limits = limits or Limits(max_prompt_tokens=4000, max_response_tokens=8000, max_tokens=100)
        policy = ModelPolicy(renderer=renderer, sampler=sampler, limits=limits)
        environments = {"countdown": world or Countdown()}
        return Table(environments=environments, agent=self.agent, policy=policy), sampler


def _order(number: int, max_rounds: int) -> Attempts:
    return Attempts(
        environment="countdown",
        task=Countdown().tasks("train")[number - 1],
        num=1,
        max_rounds=max_rounds,
        sampling=Sampling(),
        seed=11,
    )
