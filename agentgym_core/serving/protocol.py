"""What workers, servers and clients say to each other: tasks, observations, worlds as JSON."""

import importlib.metadata
import math
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, cast

import attrs

from agentgym_core import actions
from agentgym_core.actions import ActionFormat
from agentgym_core.contract import calling, tasks_of
from agentgym_core.errors import AgentGymError, EnvironmentFailure
from agentgym_core.protocols import Environment
from agentgym_core.structure import structure, unstructure
from agentgym_core.types import Message, Observation, Task, to_parts
from agentgym_core.wording import packages_of, shown

PROTOCOL = 1
"""Raised when something is said in another way; both sides refuse another number."""

Json = dict[str, Any]

FORMATS = {
    name: cls
    for name, cls in vars(actions).items()
    if isinstance(cls, type) and attrs.has(cls) and cls.__module__ == actions.__name__
}
"""Action formats that both sides know, by class name. Another one is asked where it lives."""


@attrs.frozen(kw_only=True)
class EnvironmentInfo:
    """What a client must know of an environment that it does not hold."""

    protocol: int
    environment: str
    """Its registered name."""
    package: str = ""
    version: str = ""
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """Every key of its YAML block, as the server built it."""
    tasks: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """How many tasks each split has."""
    instructions: str = ""
    action_format: Mapping[str, Any] | None = None
    """`{use: ActionLine, …}` for the formats of the core; null for another, which is asked."""
    action_instructions: tuple[str, str] = ("", "")
    """How a reply names an action, without a thought and with one."""


class Asks(Protocol):
    """How an action format that lives elsewhere is asked."""

    def __call__(self, call: str, **arguments: Any) -> Awaitable[Any]:
        """`parse` or `render`."""
        ...


@attrs.frozen(kw_only=True)
class DistantFormat:
    """An action format whose class lives with the environment, in another process.

    `parse` and `render` are awaited; see `actions.parsed` and `actions.rendered`.
    """

    told: tuple[str, str]
    ask: Asks = attrs.field(eq=False, repr=False)

    def instructions(self, thought: bool) -> str:
        """How to reply."""
        return self.told[thought]

    async def parse(self, text: str) -> str:
        """See `ActionFormat.parse`."""
        return await self.ask("parse", text=text)

    async def render(self, action: str, thought: str = "") -> str:
        """See `ActionFormat.render`."""
        return await self.ask("render", action=action, thought=thought)


def describe(environment: Environment, name: str, *, count_tasks: bool = True) -> EnvironmentInfo:
    """Everything that a client must know of it.

    Raises:
        ComponentError: the environment raises.
    """
    package, version = next(iter(packages_of(type(environment)).items()), ("", ""))
    with calling(environment, "instructions"):
        action_format = environment.action_format
        told = (action_format.instructions(False), action_format.instructions(True))
        instructions = environment.instructions()
    return EnvironmentInfo(
        protocol=PROTOCOL,
        environment=name,
        package=package,
        version=version,
        options=unstructure(environment),
        tasks=count(environment) if count_tasks else {},
        instructions=instructions,
        action_format=format_to_json(action_format),
        action_instructions=told,
    )


def count(environment: Environment) -> dict[str, int]:
    """Tasks of each split; one that the environment's options leave empty has none."""
    found: dict[str, int] = {}
    for split in environment.splits:
        try:
            found[split] = len(tasks_of(environment, split))
        except AgentGymError:
            found[split] = 0
    return found


def core_version() -> str:
    """Of agentgym-core, here."""
    return importlib.metadata.version("agentgym-core")


def info_to_json(info: EnvironmentInfo) -> Json:
    """For `/info` and the handshake of a worker."""
    return unstructure(info)


def info_from_json(value: Any, origin: str) -> EnvironmentInfo:
    """What a server or worker says of itself.

    Raises:
        EnvironmentFailure: it speaks another protocol, or is no environment of this project.
    """
    if not isinstance(value, Mapping) or "protocol" not in value or "environment" not in value:
        raise EnvironmentFailure(f"{origin}: it is no environment of AgentGym: {shown(value)}")
    block = cast("Mapping[str, Any]", value)
    if block["protocol"] != PROTOCOL:
        raise EnvironmentFailure(
            f"{origin}: it speaks protocol {shown(block['protocol'])}, and this version "
            f"{PROTOCOL}: install one version of agentgym-core on both sides"
        )
    known = {field.name for field in attrs.fields(EnvironmentInfo)}
    return structure(EnvironmentInfo, {k: block[k] for k in block if k in known}, origin)


def format_to_json(action_format: ActionFormat) -> Json | None:
    """The fields of a format that both sides know."""
    name = type(action_format).__name__
    if FORMATS.get(name) is not type(action_format):
        return None
    return {"use": name, **unstructure(action_format)}


def format_from_json(info: EnvironmentInfo, ask: Asks) -> Any:
    """The format itself, or one that asks."""
    if info.action_format is None:
        return DistantFormat(told=info.action_instructions, ask=ask)
    fields = dict(info.action_format)
    name = fields.pop("use", None)
    if name not in FORMATS:  # of a newer core
        return DistantFormat(told=info.action_instructions, ask=ask)
    return structure(FORMATS[name], fields, "action_format")


def task_to_json(task: Task) -> Json:
    """Plain values."""
    return {"id": task.id, "category": task.category, "data": dict(task.data)}


def task_from_json(value: Mapping[str, Any]) -> Task:
    """Raises KeyError if it has no `id`."""
    return Task(id=value["id"], category=value.get("category", ""), data=value.get("data", {}))


def observation_to_json(observation: Observation) -> Json:
    """Plain values; what is empty or false is left out."""
    value: Json = {"messages": [_message_to_json(message) for message in observation.messages]}
    if observation.reward:
        value["reward"] = _number(observation.reward)
    if observation.rewards:
        value["rewards"] = {name: _number(part) for name, part in observation.rewards.items()}
    for name in ("terminated", "truncated", "success"):
        if getattr(observation, name):
            value[name] = True
    if observation.info:
        value["info"] = dict(observation.info)
    return value


def observation_from_json(value: Mapping[str, Any]) -> Observation:
    """Raises KeyError, TypeError if it is none."""
    return Observation(
        messages=tuple(
            Message(message["role"], _parts(message["content"])) for message in value["messages"]
        ),
        reward=float(value.get("reward", 0.0)),
        rewards={name: float(part) for name, part in value.get("rewards", {}).items()},
        terminated=value.get("terminated", False),
        truncated=value.get("truncated", False),
        success=value.get("success", False),
        info=value.get("info", {}),
    )


def _number(value: Any) -> float | str:
    """JSON has no NaN and no infinity: they travel as text."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _message_to_json(message: Message) -> Json:
    content: Any = [dict(part) for part in message.content]
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        content = content[0]["text"]
    return {"role": message.role, "content": content}


def _parts(content: str | Sequence[Mapping[str, Any]]) -> Any:
    return to_parts(content)
