"""BabyAI: missions in a grid world, told and played in text."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import attrs

from agentgym_babyai.levels import LEVELS, Level, find_level
from agentgym_babyai.phrases import (
    ACTION_WORDS,
    COLORS,
    INSTRUCTIONS,
    KINDS,
    LONG,
    MISSION_WORDS,
    SHORT,
    Phrases,
)
from agentgym_babyai.tasks import (
    NUM_TEST_CANDIDATES,
    held_out_seeds,
    is_winnable,
    make_task,
    read_task,
)
from agentgym_core.actions import ActionFormat, ActionLine, WholeReply
from agentgym_core.protocols import Environment, Session
from agentgym_core.types import Task

Reward = Literal["minigrid", "success"]
Prompt = Literal["long", "short"]
SPLITS = ("train", "test", "all")


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class BabyAI(Environment):
    """Go to things, pick them up, put them next to others, open doors: as the mission says.

    Source: BabyAI (Chevalier-Boisvert et al., 2019, https://arxiv.org/abs/1810.08272), the forty
    levels of AgentGym, simulated by minigrid.
    """

    levels: tuple[str | int, ...] | None = attrs.field(default=None, converter=_to_tuple)
    """Names or numbers of levels, such as `[GoToRedBall, 12]`; null for all forty."""
    num_seeds: int = 100
    """Layouts and missions of each level: those of the seeds 0, 1, 2 and so on."""
    num_test_seeds: int | None = None
    """Test tasks of each level; null for the sizes of the paper's test set, which leave some levels
    without any."""
    reward: Reward = "minigrid"
    """What success is worth: `minigrid` for 1 - 0.9 * moves / most moves, or `success` for 1."""
    show_actions: bool = False
    """List in every observation what can be done."""
    prompt: Prompt = "long"
    """`long` for language models; `short` for tiny ones, which need few tokens and words."""

    def __attrs_post_init__(self) -> None:
        _check_choice("prompt", self.prompt, get_args(Prompt))
        _check_choice("reward", self.reward, get_args(Reward))
        if not isinstance(self.show_actions, bool):
            raise ValueError(f"`show_actions` is {self.show_actions!r}: give true or false")
        _check_count("num_seeds", self.num_seeds, 1)
        if self.num_test_seeds is not None:
            _check_count("num_test_seeds", self.num_test_seeds, 1)
            if self.num_test_seeds > NUM_TEST_CANDIDATES:
                raise ValueError(
                    f"`num_test_seeds` is {self.num_test_seeds}: give at most {NUM_TEST_CANDIDATES}"
                )
        if self.levels is not None and not (isinstance(self.levels, tuple) and self.levels):
            raise ValueError(
                f"`levels` is {self.levels!r}: give a list of names or numbers, such as "
                "[GoToRedBall, 12], or null"
            )
        try:
            self._chosen()
        except ValueError as error:
            raise ValueError(f"`levels`: {error}") from None

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `test` or `all`, in AgentGym's order.

        Raises:
            ValueError: there is no such split, or the options leave nothing for it.
        """
        if split not in SPLITS:
            raise ValueError(f"babyai has no split {split!r}: it has {', '.join(SPLITS)}")
        chosen = self._chosen()
        held_out = {level: held_out_seeds(level, self.num_test_seeds) for level in chosen}
        most = NUM_TEST_CANDIDATES if split == "test" else self.num_seeds
        tasks = [
            make_task(level, seed)
            for seed in range(most)
            for level in chosen
            if split == "all"
            or ((seed in held_out[level]) == (split == "test") and is_winnable(level, seed))
        ]
        if not tasks:
            raise ValueError(
                f"the options leave no task for the split {split!r}: allow more `levels` or "
                "`num_seeds`, or say how many test tasks each level has with `num_test_seeds`"
            )
        return tasks

    def task(self, item_id: str) -> Task:
        """The task that AgentGym's data files call by this id, such as "babyai_12".

        Raises:
            ValueError: the id is of another form.
        """
        return make_task(*read_task(Task(id=item_id)))

    @property
    def splits(self) -> Sequence[str]:
        """What `tasks` knows."""
        return SPLITS

    @property
    def runs_in(self) -> Literal["inline", "thread", "process"]:
        """A process: the simulator computes, and would hold up the event loop."""
        return "process"

    @property
    def sessions_per_process(self) -> int:
        """Many: a level is small, and waits for the policy most of the time."""
        return 16

    async def open(self) -> Session:
        """A new session, before its first reset."""
        from agentgym_babyai.session import BabyAISession  # takes a second to import, with pygame

        return BabyAISession(
            phrases=self._phrases,
            timed_reward=self.reward == "minigrid",
            lists_actions=self.show_actions,
        )

    def instructions(self) -> str:
        """The rules and actions; nothing in the short form, which shows by example."""
        return INSTRUCTIONS if self.prompt == "long" else ""

    @property
    def action_format(self) -> ActionFormat:
        """A line `Action: …` in the long form, the bare action in the short one."""
        return ActionLine() if self.prompt == "long" else WholeReply(instruction="")

    def corpus(self) -> Iterable[str]:
        """Everything that the world says and that one can say to it."""
        yield self.instructions()
        yield from (self.action_format.instructions(thought) for thought in (False, True))
        yield from self._phrases.templates()
        yield "0 1 2 3 4 5 6 7 8 9"
        yield ACTION_WORDS
        yield MISSION_WORDS
        yield " ".join((*COLORS, *KINDS, "open closed locked wall"))

    @property
    def _phrases(self) -> Phrases:
        return LONG if self.prompt == "long" else SHORT

    def _chosen(self) -> list[Level]:
        """The chosen levels by their numbers."""
        found = LEVELS if self.levels is None else map(find_level, self.levels)
        return sorted(set(found), key=lambda level: level.number)


def _check_count(key: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{key}` is {value!r}: give a whole number of at least {least}")


def _check_choice(key: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"`{key}` is {value!r}: give {' or '.join(choices)}")
