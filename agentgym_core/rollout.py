"""Episodes: one, the attempts at one task, and many tasks at once.

Every episode goes at its own pace; nothing waits for the slowest turn. A failure of environment,
engine or agent is never a reward: the episode is played anew with the same seed, then dropped and
counted. Cancelling leaves no session open.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import attrs

from agentgym_core.contract import calling, is_fault
from agentgym_core.errors import (
    EngineFailure,
    EnvironmentFailure,
    EpisodeEnded,
    EpisodeFailure,
    InvalidReward,
)
from agentgym_core.handler import Policy, RecordingHandler
from agentgym_core.protocols import Agent, Environment, Opens, Session
from agentgym_core.rewards import RewardBlock, rewarded
from agentgym_core.seeds import derive_seed
from agentgym_core.session import EpisodeSession, within
from agentgym_core.types import Ending, Episode, Group, Sampling, Task, Turn
from agentgym_core.watchdog import Progress
from agentgym_core.wording import origin, shown

log = logging.getLogger(__name__)

_ENDINGS: dict[type[EpisodeFailure], Ending] = {
    EnvironmentFailure: Ending.ENVIRONMENT_FAILED,
    EngineFailure: Ending.ENGINE_FAILED,
    InvalidReward: Ending.INVALID_REWARD,
}


@attrs.frozen(kw_only=True)
class Table:
    """Everything that episodes are played with, apart from the task."""

    environments: Mapping[str, Environment]
    agent: Agent
    policy: Policy
    places: Mapping[str, Opens] = attrs.field(factory=dict[str, Opens])
    """Where the sessions of an environment are opened, if not by itself."""
    rewards: tuple[RewardBlock, ...] = ()
    """Their sum takes the place of the environment's reward; none leaves it as it is."""
    max_retries: int = 2
    max_call_seconds: float = 300.0
    """See `settings.Limits`."""
    progress: Progress = attrs.field(factory=Progress)


@attrs.frozen(kw_only=True)
class Attempts:
    """An order: play this task `num` times."""

    environment: str
    task: Task
    num: int
    max_rounds: int
    sampling: Sampling
    seed: int
    """Unique to the run, the step and the task's place in it."""

    @property
    def environment_seed(self) -> int:
        """The attempts at one task face the same world."""
        return derive_seed(self.seed, "environment")

    def sampling_seed(self, sample: int) -> int:
        """Each attempt draws its own tokens; the same ones again when it is retried."""
        return derive_seed(self.seed, "sample", sample)


async def play_groups(
    table: Table, orders: Iterable[Attempts], max_concurrent: int
) -> tuple[Group, ...]:
    """Play all orders, at most `max_concurrent` episodes at a time."""
    places = asyncio.Semaphore(max_concurrent)
    async with asyncio.TaskGroup() as tasks:
        playing = [tasks.create_task(play_group(table, order, places)) for order in orders]
    return tuple(task.result() for task in playing)


async def play_group(table: Table, order: Attempts, places: asyncio.Semaphore) -> Group:
    """Play one task `order.num` times; failed attempts are retried, then dropped."""
    async with asyncio.TaskGroup() as tasks:
        playing = [
            tasks.create_task(_play_with_retries(table, order, sample, places))
            for sample in range(order.num)
        ]
    episodes = [task.result() for task in playing]
    whole = tuple(episode for episode in episodes if not episode.ending.is_failure)
    return Group(
        task=order.task,
        environment=order.environment,
        episodes=whole,
        failures=tuple(episode for episode in episodes if episode.ending.is_failure),
    )


async def _play_with_retries(
    table: Table, order: Attempts, sample: int, places: asyncio.Semaphore
) -> Episode:
    failed: list[Ending] = []
    async with places:
        episode = await play_episode(table, order, sample)
        for retry in range(table.max_retries):
            if not episode.ending.is_failure:
                break
            log.warning(
                "task %s, attempt %d, try %d: %s: %s",
                order.task.id,
                sample,
                retry + 1,
                episode.ending.value,
                episode.error,
            )
            failed.append(episode.ending)
            episode = await play_episode(table, order, sample)
        table.progress.beat()
    return rewarded(attrs.evolve(episode, failed_tries=tuple(failed)), table.rewards)


async def play_episode(table: Table, order: Attempts, sample: int) -> Episode:
    """Play one task once. Failures come back as the episode's ending; only cancelling raises."""
    start = time.perf_counter()
    environment = table.environments[order.environment]
    key = f"{order.seed}/{sample}"
    error, handler, metered = "", None, None
    ending: Ending | None = None
    final_ids: tuple[int, ...] = ()
    try:
        place = table.places.get(order.environment, environment)
        async with opened(environment, table.max_call_seconds, place) as session:
            metered = EpisodeSession(
                session,
                environment,
                order.task,
                seed=order.environment_seed,
                max_rounds=order.max_rounds,
                max_call_seconds=table.max_call_seconds,
                progress=table.progress,
            )
            handler = table.policy.begin(
                metered, sampling=order.sampling, key=key, seed=order.sampling_seed(sample)
            )
            with contextlib.suppress(EpisodeEnded):
                await table.agent.play(order.task, metered, handler)
            metered.stop()  # an agent that returns early has stopped
            ending = metered.ending
            final_ids = handler.final_ids()
    except EpisodeFailure as failure:
        ending = next(end for kind, end in _ENDINGS.items() if isinstance(failure, kind))
        error = str(failure)
    except BaseException as failure:
        if not is_fault(failure):
            raise
        log.debug("the agent failed on task %s", order.task.id, exc_info=True)
        ending = Ending.AGENT_FAILED
        error = f"{origin(table.agent)}: {type(failure).__name__}: {failure}"
    finally:
        table.policy.release(key)
    assert ending is not None
    verdicts = metered.verdicts if metered and not ending.is_failure else (False,)
    return Episode(
        task=order.task,
        environment=order.environment,
        sample=sample,
        seed=order.seed,
        max_rounds=order.max_rounds,
        turns=_join_turns(handler, metered) if handler and metered else (),
        final_ids=final_ids,
        messages=tuple(handler.messages) if handler else (),
        ending=ending,
        success=verdicts[0],
        retries=verdicts[1:],
        error=error,
        seconds=time.perf_counter() - start,
    )


@contextlib.asynccontextmanager
async def opened(
    environment: Environment, seconds: float = 300.0, place: Opens | None = None
) -> AsyncGenerator[Session]:
    """A session that is closed whatever happens; a failing close is logged, not an ending."""
    with calling(environment, "open", EnvironmentFailure):
        session: Any = await within(seconds, "open", (place or environment).open)
        if not all(hasattr(session, name) for name in ("reset", "step", "close")):
            raise TypeError(f"returned {shown(session)}, expected a Session")
    try:
        yield session
    finally:
        try:
            await within(seconds, "close", session.close)
        except BaseException as error:
            if not is_fault(error):
                raise
            log.warning("%s: closing a session failed: %s", origin(environment), error)


def _join_turns(handler: RecordingHandler, session: EpisodeSession) -> tuple[Turn, ...]:
    """The token side and the world side of every turn. A turn may act more than once.

    What was earned in an attempt that was tried again is not the turn's reward, but stands among
    its parts.
    """
    counts = len(session.verdicts)
    turns: list[Turn] = []
    for index, tokens in enumerate(handler.turns):
        rounds = [r for r in session.rounds if r.turn == index]
        last = rounds[-1] if rounds else None
        parts = dict(last.observation.rewards) if last else {}
        abandoned = [r.observation.reward for r in rounds if r.attempt < counts]
        if abandoned:
            parts["abandoned"] = sum(abandoned)
        turns.append(
            Turn(
                sequence=tokens.sequence,
                prompt_ids=tokens.prompt_ids,
                token_ids=tokens.completion.token_ids,
                logprobs=tokens.completion.logprobs,
                finish_reason=tokens.completion.finish_reason,
                policy_version=tokens.completion.policy_version,
                text=tokens.text,
                action=last.action if last else None,
                observation=last.observation.text if last else None,
                reward=sum(r.observation.reward for r in rounds if r.attempt >= counts),
                rewards=parts,
                rounds=len(rounds),
                format_error=any(r.format_error for r in rounds),
                attempt=tokens.attempt,
            )
        )
    return tuple(turns)
