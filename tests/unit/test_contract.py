import asyncio
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from agentgym_core.contract import (
    calling,
    check_horizon,
    check_observation,
    check_selection,
    corpus_of,
    instructions_of,
    starting,
    tasks_of,
)
from agentgym_core.errors import ComponentError, ConfigError, EnvironmentFailure
from agentgym_core.protocols import Environment, TaskPool
from agentgym_core.rollout import opened
from agentgym_core.types import Observation, Task


@attrs.frozen(kw_only=True)
class World(Environment):
    answer: object = None

    def tasks(self, split):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def open(self):
        return self.answer


NAME = f"World (module {__name__}): ".replace("(", r"\(").replace(")", r"\)")
ONE = Task(id="world_1")


def test_whatever_a_component_raises_names_it():
    with pytest.raises(ComponentError, match=NAME + "dance: KeyError: left foot"):  # noqa: SIM117
        with calling(World(), "dance"):
            raise KeyError("left foot")


def test_an_error_that_is_ours_already_stays():
    with pytest.raises(ConfigError, match=r"^seed: too green$"), calling(World(), "dance"):
        raise ConfigError("seed: too green")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ValueError("no\ntemplate"), "engine: no template"),
        (KeyError("weights"), "engine: KeyError: weights"),
        (ConfigError("seed: too green"), "seed: too green"),
    ],
)
def test_what_a_component_refuses_at_its_start_is_the_configuration_s(raised, message):
    with pytest.raises(ConfigError, match=f"^{message}$"), starting("engine"):
        raise raised


def test_tasks():
    assert tasks_of(World(answer=iter([ONE])), "train") == (ONE,)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (OSError("no disk"), "OSError: no disk"),
        (None, "returned nothing, expected a sequence of Task"),
        ("world_1", "returned 'world_1', expected a sequence of Task"),
        (["world_1"], "returned 'world_1' in place of a Task"),
        ([], "returned no tasks"),
        ([ONE, ONE], "two tasks are called 'world_1'"),
    ],
)
def test_wrong_tasks_name_environment_and_split(answer, message):
    with pytest.raises(ComponentError, match=NAME + rf"tasks\('train'\): .*{message}"):
        tasks_of(World(answer=answer), "train")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "a session returned nothing, expected an Observation"),
        ("You win", "a session returned 'You win', expected an Observation"),
        (Observation(messages="", reward="1"), "reward is '1', expected a number"),
        (Observation(messages="", rewards={"speed": None}), "speed is nothing"),
    ],
)
def test_wrong_observations(value, message):
    with pytest.raises(EnvironmentFailure, match=NAME + message):
        check_observation(World(), value)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "many", None])
def test_wrong_horizons(value):
    with pytest.raises(ValueError, match="expected a whole number of at least 1"):
        check_horizon(value)
    assert check_horizon(3) == 3


def test_what_open_returns_must_be_a_session():
    async def use(environment):
        async with opened(environment):
            pass

    with pytest.raises(EnvironmentFailure, match=NAME + "open: .* expected a Session"):
        asyncio.run(use(World(answer=SimpleNamespace(reset=None))))


POOL = TaskPool(environment="world", weight=1.0, tasks=(ONE,))


def test_a_selection():
    assert check_selection([(POOL, ONE)] * 2, [POOL], 2) == ((POOL, ONE),) * 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "returned nothing, expected"),
        ("tasks", "returned 'tasks', expected"),
        ([ONE], r"returned Task\(.* in place of a \(pool, task\) pair"),
        ([(POOL, "world_1")], r"in place of a \(pool, task\) pair"),
        ([(attrs.evolve(POOL, weight=2.0), ONE)], "from a pool of world that it was not given"),
        ([(POOL, ONE)] * 3, "chose 3 tasks in place of 2"),
        ([], "chose 0 tasks in place of 2"),
    ],
)
def test_what_is_no_selection(value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_selection(value, [POOL], 2)


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize(
    "raised", [SystemExit(3), Panic("at the disco"), asyncio.CancelledError("by nobody")]
)
def test_what_is_no_exception_is_a_fault_of_the_component_too(raised):
    async def ends():
        raise raised

    async def play():
        world = World()
        object.__setattr__(world, "open", ends)
        async with opened(world):
            pass

    kind = type(raised).__name__
    with pytest.raises(EnvironmentFailure, match=NAME + f"open: {kind}: {raised}"):
        asyncio.run(play())
    with pytest.raises(ComponentError, match=NAME + f"dance: {kind}"), calling(World(), "dance"):
        raise raised


def test_stopping_is_no_fault_of_a_component():
    async def play():
        world = World()
        object.__setattr__(world, "open", lambda: asyncio.sleep(9))
        async with opened(world):
            pass

    async def stopped():
        playing = asyncio.create_task(play())
        await asyncio.sleep(0)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    asyncio.run(stopped())
    with pytest.raises(KeyboardInterrupt), calling(World(), "dance"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("flag", ["terminated", "truncated", "success"])
def test_a_verdict_is_true_or_false(flag):
    assert check_observation(World(), Observation(messages="", **{flag: np.bool_(True)}))
    with pytest.raises(EnvironmentFailure, match=f"{flag} is nothing, expected true or false"):
        check_observation(World(), Observation(messages="", **{flag: None}))
    with pytest.raises(EnvironmentFailure, match=f"{flag} is 2, expected true or false"):
        check_observation(World(), Observation(messages="", **{flag: 2}))


@pytest.mark.parametrize("corpus", ["one text", 3, [b"bytes"], [None]])
def test_a_corpus_is_texts(corpus):
    world = World()
    object.__setattr__(world, "corpus", lambda: corpus)
    with pytest.raises(ComponentError, match=r"corpus\(\): TypeError: returned"):
        corpus_of(world)


def test_instructions_are_text():
    world = World()
    object.__setattr__(world, "instructions", lambda: None)
    with pytest.raises(EnvironmentFailure, match="instructions: TypeError: returned nothing"):
        instructions_of(world, thought=True)


@pytest.mark.parametrize("messages", [[{"role": "user"}], ["a", 3], "lone \ud800"])
def test_messages_are_texts_that_can_be_written(messages):
    with pytest.raises(EnvironmentFailure, match=r"messages holds|cannot be written as UTF-8"):
        check_observation(World(), Observation(messages=messages))
