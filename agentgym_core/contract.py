"""Components held to their contract: what one raises or returns wrong names it, and its package."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from agentgym_core.errors import AgentGymError, ComponentError, ConfigError, EnvironmentFailure
from agentgym_core.protocols import Environment, Split, TaskPool
from agentgym_core.types import Message, Observation, Task
from agentgym_core.wording import one_line, origin, shown

T = TypeVar("T")


def is_fault(error: BaseException) -> bool:
    """Whether a component's code raised it, and not a user or the run that stops it.

    SystemExit counts, and so do panics of libraries in Rust, which are no Exception, and a
    CancelledError that escapes from a library though nobody cancelled this task.
    """
    if not isinstance(error, asyncio.CancelledError):
        return not isinstance(error, KeyboardInterrupt | GeneratorExit)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # there is no loop
        return True
    return task is not None and not task.cancelling()


@contextmanager
def calling(
    component: object, call: str, raises: type[AgentGymError] = ComponentError
) -> Generator[None]:
    """Turn whatever the component raises in the block into one clean error.

    Raises:
        ComponentError: names the component, its package and the call; or `raises`, which is an
            EpisodeFailure where it costs an episode and not the run.
    """
    try:
        yield
    except AgentGymError:
        raise
    except BaseException as error:  # a component may raise anything
        if not is_fault(error):
            raise
        raise raises(
            f"{origin(component)}: {call}: {type(error).__name__}: {one_line(error)}"
        ) from error


@contextmanager
def starting(block: str) -> Generator[None]:
    """What a component refuses at its start, the configuration asked for: say in which block.

    Raises:
        ConfigError: in place of whatever the component, or a library that it loads with, raises.
    """
    try:
        yield
    except AgentGymError:
        raise
    except BaseException as error:  # a damaged file, say: each library has errors of its own
        if not is_fault(error):
            raise
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        raise ConfigError(f"{block}: {kind}{one_line(error)}") from error


def tasks_of(environment: Environment, split: Split) -> tuple[Task, ...]:
    """The tasks of a split, at least one.

    Raises:
        ComponentError: the environment raises, has none, or returns something else than tasks with
            ids of their own.
    """
    with calling(environment, f"tasks({split!r})"):
        tasks = _several(environment.tasks(split), Task, "Task")
        if not tasks:
            raise ValueError(
                "returned no tasks: choose another `split`, or options that leave some"
            )
        seen: set[str] = set()
        for task in tasks:
            if task.id in seen:
                raise ValueError(f"two tasks are called {task.id!r}: ids must be unique")
            seen.add(task.id)
    return tasks


def corpus_of(environment: Environment) -> tuple[str, ...]:
    """The texts whose words a model from scratch will know.

    Raises:
        ComponentError: the environment raises, or returns something else than texts.
    """
    with calling(environment, "corpus()"):
        return _several(environment.corpus(), str, "text")


def instructions_of(environment: Environment, *, thought: bool) -> str:
    """What the policy is told before it sees anything: what the world is, and how to reply.

    Raises:
        EnvironmentFailure: the environment raises, or returns something else than text.
    """
    with calling(environment, "instructions", EnvironmentFailure):
        told = (environment.instructions(), environment.action_format.instructions(thought))
        texts = _several(told, str, "text")
    return "\n\n".join(text for text in texts if text)


def check_observation(environment: Environment, value: Any) -> Observation:
    """What `reset` or `step` returned, if it is an observation with numbers for rewards.

    Raises:
        EnvironmentFailure: it is not.
    """
    if not isinstance(value, Observation):
        raise EnvironmentFailure(
            f"{origin(environment)}: a session returned {shown(value)}, expected an Observation"
        )
    messages: tuple[Any, ...] = value.messages
    for message in messages:
        if not isinstance(message, Message):
            raise EnvironmentFailure(
                f"{origin(environment)}: messages holds {shown(message)}, expected a text, a "
                "Message or several"
            )
        try:
            message.text.encode()
        except Exception as error:
            raise EnvironmentFailure(
                f"{origin(environment)}: a message cannot be written as UTF-8 text: {error}"
            ) from error
    for name in ("terminated", "truncated", "success"):
        flag = getattr(value, name)
        if not isinstance(flag, bool | int | np.bool_) or flag not in (0, 1):
            raise EnvironmentFailure(
                f"{origin(environment)}: {name} is {shown(flag)}, expected true or false"
            )
    for name, reward in {"reward": value.reward, **value.rewards}.items():
        if not isinstance(reward, Real):
            raise EnvironmentFailure(
                f"{origin(environment)}: {name} is {shown(reward)}, expected a number"
            )
    return value


def check_selection(
    value: Any, pools: Sequence[TaskPool], num_tasks: int
) -> tuple[tuple[TaskPool, Task], ...]:
    """What a task sampler returned, if it is that many of the pools' tasks.

    Raises:
        TypeError, ValueError: it is something else.
    """
    pairs: type[Any] = tuple
    chosen = _several(value, pairs, "(pool, task) pair")
    for pair in chosen:
        match pair:
            case (TaskPool() as pool, Task()):
                if not any(pool is known for known in pools):
                    raise ValueError(
                        f"chose from a pool of {pool.environment} that it was not given"
                    )
            case _:
                raise TypeError(f"returned {shown(pair)} in place of a (pool, task) pair")
    if len(chosen) != num_tasks:
        raise ValueError(f"chose {len(chosen)} tasks in place of {num_tasks}")
    return chosen


def _several(value: Any, kind: type[T], noun: str) -> tuple[T, ...]:
    """What a component returned, if it is a sequence of that kind.

    Raises:
        TypeError: it is something else, or one of them is.
    """
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        raise TypeError(f"returned {shown(value)}, expected a sequence of {noun}s")
    values: tuple[Any, ...] = tuple(value)
    for each in values:
        if not isinstance(each, kind):
            raise TypeError(f"returned {shown(each)} in place of a {noun}")
    return values


def check_horizon(value: Any) -> int:
    """What a round scheduler returned, if it is a horizon.

    Raises:
        ValueError: it is no whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"returned {shown(value)}, expected a whole number of at least 1")
    return value
