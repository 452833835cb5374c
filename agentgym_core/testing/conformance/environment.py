"""The suite of environments."""

import asyncio
import contextlib
import json
import math
import pickle
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any, ClassVar, TypeVar
from unittest import SkipTest

from agentgym_core.protocols import Environment, Session
from agentgym_core.serving.protocol import observation_to_json
from agentgym_core.testing.conformance.component import ComponentConformance, run_python
from agentgym_core.testing.conformance.scripts import EPISODE, TASKS
from agentgym_core.types import Observation, Task

T = TypeVar("T")

NONSENSE = (
    "",
    " ",
    "\n\n",
    "x" * 20_000,
    "ünïcödé 中文 🙂 \u202e",
    '{"action": [1, null]}',
    "\x00\x07\x1b[31m",
    "%s {0} {x} \\ '; DROP TABLE tasks; --",
)
"""Any text is allowed as an action."""


class EnvironmentConformance(ComponentConformance):
    """What training relies on in every environment.

    Example:
        class TestGuessNumber(EnvironmentConformance):
            environment = GuessNumber(high=10)
    """

    kind: ClassVar[str] = "environment"
    environment: Environment
    splits: ClassVar[Sequence[str]] = ("train", "test")
    num_tasks: ClassVar[int] = 3
    """Tasks of each split that are played."""
    num_actions: ClassVar[int] = 12
    """Most actions of a trial walk."""
    max_expert_actions: ClassVar[int] = 200
    deadline_seconds: ClassVar[float] = 30.0
    """Most time for one call of a session."""
    max_block_seconds: ClassVar[float] = 1.0
    """Longest that an `inline` environment may keep the event loop to itself."""

    def test_says_where_it_may_run(self) -> None:
        """Runs and servers place its sessions by that."""
        where, most = self.environment.runs_in, self.environment.sessions_per_process
        assert where in ("inline", "thread", "process"), (
            f"runs_in is {where!r}: let it be 'inline', 'thread' or 'process'"
        )
        assert isinstance(most, int), f"sessions_per_process is {most!r}: give a whole number"
        assert most >= 1, f"sessions_per_process is {most}: give at least 1"
        missing = set(self.splits) - set(self.environment.splits)
        assert not missing, f"tasks() knows {sorted(missing)}, and `splits` does not say so"

    def test_task_ids_are_unique(self) -> None:
        """Records and task files name tasks by their id."""
        for split in self.splits:
            ids = [task.id for task in self.environment.tasks(split)]
            assert ids, f"split {split!r} has no tasks"
            twice = sorted({name for name in ids if ids.count(name) > 1}) if len(ids) < 1000 else []
            assert len(set(ids)) == len(ids), f"task ids of {split!r} come twice: {twice[:5]}"

    def test_task_data_is_json(self) -> None:
        """Tasks are written into records and sent to servers."""
        for task in self._sample():
            data = dict(task.data)
            assert json.loads(json.dumps(data)) == data, (
                f"task {task.id}: data {data!r} does not survive JSON; use lists, not tuples, and "
                "texts as keys"
            )

    def test_tasks_are_the_same_in_every_process(self) -> None:
        """A resumed run, and every rank of it, must find the same tasks in the same order."""
        given = pickle.dumps(self.environment)
        listings: list[str] = []
        for hash_seed in ("0", "1", "2"):
            done = run_python(TASKS, *self.splits, given=given, hash_seed=hash_seed)
            if done.stderr.startswith("missing"):
                raise SkipTest(f"the environment's class cannot be imported: {done.stderr.strip()}")
            assert done.returncode == 0, f"tasks failed in another process: {done.stderr[-500:]}"
            listings.append(done.stdout)
        assert len(set(listings)) == 1, (
            "tasks differ between processes: do not use hash(), sets or an unseeded random in them"
        )

    def test_same_task_and_seed_give_the_same_episode(self) -> None:
        """Retries, siblings of a group and replays all rely on it."""
        for task in self._sample():
            actions, seen = self._run(self._walk(task, seed=1))
            again = self._run(self._follow(task, actions, seed=1))
            _assert_same(seen, again, f"task {task.id} is not the same when it is played again")

    def test_episodes_are_the_same_in_every_process(self) -> None:
        """A worker that died is restored in another process, and servers have many."""
        task = self._sample()[-1]
        actions, seen = self._run(self._walk(task, seed=1))
        here = [json.dumps(observation_to_json(each), sort_keys=True) for each in seen]
        given = pickle.dumps((self.environment, task, 1, actions))
        for hash_seed in ("1", "2"):
            done = run_python(EPISODE, given=given, hash_seed=hash_seed)
            if done.stderr.startswith("missing"):
                raise SkipTest(f"the environment's class cannot be imported: {done.stderr.strip()}")
            assert done.returncode == 0, f"it failed in another process: {done.stderr[-500:]}"
            for place, (one, other) in enumerate(zip(here, done.stdout.splitlines(), strict=True)):
                assert one == other, (
                    f"task {task.id}: observation {place} is {one[:300]} here and {other[:300]} in "
                    "another process: do not let it depend on hash(), sets or an unseeded random"
                )

    def test_sessions_do_not_see_each_other(self) -> None:
        """Many episodes are played at once."""
        tasks = (self._sample() * 2)[:2]
        walks = [self._run(self._walk(task, seed=number)) for number, task in enumerate(tasks)]

        async def interleaved() -> list[list[Any]]:
            async with self._open() as one, self._open() as other:
                sessions = (one, other)
                seen: list[list[Any]] = [[], []]
                for number, session in enumerate(sessions):
                    seen[number].append(await self._reset(session, tasks[number], number))
                for place in range(self.num_actions):
                    for number, session in enumerate(sessions):
                        for action in walks[number][0][place : place + 1]:
                            seen[number].append(await self._step(session, action))
                return seen

        for number, seen in enumerate(self._run(interleaved())):
            _assert_same(walks[number][1], seen, "a session changes when another is played beside")

    def test_a_session_can_begin_again(self) -> None:
        """Sessions are reused: nothing of the last episode may remain."""
        task = self._sample()[0]
        actions, seen = self._run(self._walk(task, seed=3))

        async def twice() -> list[Any]:
            async with self._open() as session:
                await self._play(session, task, actions, seed=3)
                return await self._play(session, task, actions, seed=3)

        _assert_same(seen, self._run(twice()), "a second reset leaves something of the first")

    def test_step_before_reset_raises(self) -> None:
        """There is no world yet to act in."""

        async def too_early() -> bool:
            async with self._open() as session:
                return await _raises(session.step("anything"))

        assert self._run(too_early()), "step before reset must raise: there is no task under way"

    def test_step_after_the_end_raises(self) -> None:
        """An action after the end would be paid twice."""

        async def too_late() -> bool | None:
            async with self._open() as session:
                for action in await self._ending_actions(session):
                    await self._step(session, action)
                    if self._ended:
                        return await _raises(session.step("anything"))
                return None

        raised = self._run(too_late())
        if raised is None:
            raise SkipTest("no episode came to an end: the environment offers no expert")
        assert raised, "step after the end must raise, or a reward could be earned twice"

    def test_close_may_be_called_twice(self) -> None:
        """Cancelling closes what may be closed already."""

        async def twice() -> None:
            session = await self._timed(self.environment.open(), "open")
            await self._timed(session.close(), "close")
            await self._timed(session.close(), "the second close")

        self._run(twice())

    def test_any_text_is_an_action(self) -> None:
        """A policy writes anything; a failure of the environment is none of its doing."""
        task = self._sample()[0]

        async def answers() -> None:
            for action in NONSENSE:
                async with self._open() as session:
                    await self._reset(session, task, 0)
                    try:
                        observation = await self._timed(session.step(action), "step")
                    except Exception as error:
                        shown = repr(action[:40])
                        raise AssertionError(
                            f"step({shown}) raised {type(error).__name__}: {error}. Answer what "
                            "you do not understand in words"
                        ) from error
                    over = observation.terminated or observation.truncated
                    assert observation.text.strip() or over, (
                        f"step({action[:40]!r}) is answered with nothing: say what was wrong"
                    )

        self._run(answers())

    def test_rewards_are_finite_and_endings_make_sense(self) -> None:
        """An episode ends in one way; the verdict is true or false."""
        for task in self._sample():
            for observation in self._run(self._observations(task)):
                parts = {"reward": observation.reward, **observation.rewards}
                for name, value in parts.items():
                    assert math.isfinite(value), f"task {task.id}: {name} is {value}"
                assert not (observation.terminated and observation.truncated), (
                    f"task {task.id}: an observation is terminated and truncated; it is one"
                )
                json.dumps(dict(observation.info))

    def test_the_expert_succeeds(self) -> None:
        """Demonstrations are made of what it does."""
        if self._run(self._expert_of(self._sample()[0])) is None:
            raise SkipTest("the environment has no expert")
        for task in self._sample():
            last = self._run(self._expert_episode(task))
            assert last.success, (
                f"task {task.id}: the expert did not succeed within {self.max_expert_actions} "
                f"actions; the world said at last: {last.text[:200]!r}"
            )

    def test_does_not_block_the_event_loop(self) -> None:
        """One slow step of an `inline` environment stalls all episodes."""
        if self.environment.runs_in != "inline":
            raise SkipTest(f"it runs in a {self.environment.runs_in}")
        task = self._sample()[0]
        self._run(self._walk(task, seed=0))  # loads what is loaded once

        async def longest_block() -> float:
            gaps = [0.0]

            async def tick() -> None:
                last = time.perf_counter()
                while True:
                    await asyncio.sleep(0)
                    now = time.perf_counter()
                    gaps.append(now - last)
                    last = now

            ticking = asyncio.create_task(tick())
            await asyncio.sleep(0)
            await self._walk(task, seed=0)
            await asyncio.sleep(0)
            ticking.cancel()
            return max(gaps)

        longest = self._run(longest_block())
        assert longest <= self.max_block_seconds, (
            f"the event loop stood still for {longest:.2f} s: let `runs_in` be 'thread' or "
            "'process', or await what takes long"
        )

    # How the checks play.

    _ended: bool = False

    def _run(self, call: Any) -> Any:
        return asyncio.run(call)

    def _sample(self) -> list[Task]:
        return [
            task
            for split in self.splits
            for task in self.environment.tasks(split)[: self.num_tasks]
        ]

    async def _timed(self, call: Awaitable[T], what: str) -> T:
        start = time.perf_counter()
        try:
            result = await asyncio.wait_for(call, self.deadline_seconds)
        except TimeoutError:
            raise AssertionError(f"{what} took more than {self.deadline_seconds} s") from None
        seconds = time.perf_counter() - start
        assert seconds <= self.deadline_seconds, f"{what} took {seconds:.1f} s"
        return result

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncGenerator[Session]:
        session = await self._timed(self.environment.open(), "open")
        try:
            yield session
        finally:
            await self._timed(session.close(), "close")

    async def _reset(self, session: Session, task: Task, seed: int) -> Any:
        return self._see(await self._timed(session.reset(task, seed), "reset"))

    async def _step(self, session: Session, action: str) -> Any:
        return self._see(await self._timed(session.step(action), "step"))

    def _see(self, observation: Observation) -> Any:
        self._ended = observation.terminated or observation.truncated
        return observation

    async def _walk(self, task: Task, seed: int) -> tuple[list[str], list[Observation]]:
        """Act as the expert does, as one may, or senselessly, by a fixed draw."""
        draw = random.Random(f"{task.id} {seed}")
        actions: list[str] = []
        async with self._open() as session:
            seen = [await self._reset(session, task, seed)]
            while len(actions) < self.num_actions and not self._ended:
                actions.append(await self._choose(session, draw))
                seen.append(await self._step(session, actions[-1]))
        return actions, seen

    async def _choose(self, session: Session, draw: random.Random) -> str:
        expert = await session.expert_action() if draw.random() < 0.4 else None
        if expert is not None:
            return expert
        known = list(await session.available_actions())
        return draw.choice([*known, "look", "7"]) if draw.random() < 0.9 else "qwertz"

    async def _play(
        self, session: Session, task: Task, actions: Sequence[str], seed: int
    ) -> list[Observation]:
        seen = [await self._reset(session, task, seed)]
        for action in actions:
            seen.append(await self._step(session, action))
        return seen

    async def _follow(self, task: Task, actions: Sequence[str], seed: int) -> list[Observation]:
        async with self._open() as session:
            return await self._play(session, task, actions, seed)

    async def _observations(self, task: Task) -> list[Observation]:
        return (await self._walk(task, seed=2))[1]

    async def _expert_of(self, task: Task) -> str | None:
        async with self._open() as session:
            await self._reset(session, task, 0)
            return await session.expert_action()

    async def _expert_actions(self, session: Session, task: Task) -> list[str]:
        """The expert's way to the end, in a session of its own."""
        actions: list[str] = []
        await self._reset(session, task, 0)
        while len(actions) < self.max_expert_actions and not self._ended:
            action = await session.expert_action()
            if action is None:
                break
            actions.append(action)
            await self._step(session, action)
        return actions

    async def _ending_actions(self, session: Session) -> list[str]:
        task = self._sample()[0]
        async with self._open() as other:
            actions = await self._expert_actions(other, task)
        await self._reset(session, task, 0)
        return actions

    async def _expert_episode(self, task: Task) -> Observation:
        async with self._open() as session:
            last = await self._reset(session, task, 0)
            for _ in range(self.max_expert_actions):
                action = None if self._ended else await session.expert_action()
                if action is None:
                    break
                last = await self._step(session, action)
            return last


async def _raises(call: Awaitable[Any]) -> bool:
    try:
        await call
    except Exception:
        return True
    return False


def _assert_same(left: list[Observation], right: list[Observation], problem: str) -> None:
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        assert one == other, f"{problem}: observation {place} is {one.text!r}, then {other.text!r}"
    assert len(left) == len(right), f"{problem}: {len(left)} observations, then {len(right)}"
