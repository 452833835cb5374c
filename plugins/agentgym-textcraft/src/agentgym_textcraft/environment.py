"""TextCraft: craft an item from a tree of recipes, in text."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import attrs

from agentgym_core.actions import ActionFormat, ActionLine, WholeReply
from agentgym_core.protocols import Environment
from agentgym_core.types import Task
from agentgym_textcraft.phrases import INSTRUCTIONS, LONG, SHORT, Phrases
from agentgym_textcraft.puzzles import Puzzles
from agentgym_textcraft.recipe_files import recipe_book
from agentgym_textcraft.session import TextCraftSession
from agentgym_textcraft.tasks import (
    TEST_SHARE,
    held_out_goals,
    make_task,
    matching_goals,
    read_task,
    sample_goals,
)

Prompt = Literal["long", "short"]
HeldOut = Literal["goals", "instances"]
SPLITS = ("train", "test", "all")


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class TextCraft(Environment):
    """Craft a goal item: get what is raw, and follow recipes. Reward 1 when it is made, else 0.

    Source: ADaPT (Prasad et al., 2023, https://arxiv.org/abs/2311.05772), in AgentGym's version.
    """

    depths: tuple[int, ...] = attrs.field(default=(1, 2, 3, 4), converter=_to_tuple)
    """Of the goals' recipe trees: layers of crafting, 1 to 4."""
    plan_lengths: tuple[int, int] | None = attrs.field(default=None, converter=_to_tuple)
    """Keep goals whose expert plan has that many actions, `[shortest, longest]`; null for all."""
    tags: bool = True
    """False leaves out recipes that ask for a kind of item, such as any planks, and the goals that
    cannot be made without one."""
    num_goals: int | None = None
    """Keep so many of the goals; null for all."""
    goal_seed: int = 0
    """Which goals `num_goals` keeps."""
    held_out: HeldOut = "goals"
    """What the test split has to itself: `goals`, or only `instances` of the same goals, which
    differ in their distractors and the order of the recipes."""
    train_instances: int = 1
    """Training tasks of each goal. All tasks of a goal look different; a goal that cannot be shown
    in so many ways is left out."""
    test_instances: int = 1
    """Test tasks of each goal."""
    num_distractors: int = 10
    """Most recipes shown of no certain use; they share an ingredient with those of use."""
    alternatives: bool = True
    """Show every recipe that can have a part in making the goal; false shows, beside distractors,
    only those of the expert's plan."""
    prompt: Prompt = "long"
    """`long` for language models; `short` for tiny ones, which need few tokens and words."""

    def __attrs_post_init__(self) -> None:
        _check_choice("prompt", self.prompt, get_args(Prompt))
        _check_choice("held_out", self.held_out, get_args(HeldOut))
        for key in ("tags", "alternatives"):
            if not isinstance(getattr(self, key), bool):
                raise ValueError(f"`{key}` is {getattr(self, key)!r}: give true or false")
        for key, least in (("train_instances", 1), ("test_instances", 1), ("num_distractors", 0)):
            _check_count(key, getattr(self, key), least)
        _check_count("goal_seed", self.goal_seed, 0)
        if self.num_goals is not None:
            _check_count("num_goals", self.num_goals, 1)
        if not _are_counts(self.depths) or not set(self.depths) <= TEST_SHARE.keys():
            raise ValueError(
                f"`depths` is {self.depths!r}: give a list of depths from 1 to 4, such as [2, 3]"
            )
        lengths = self.plan_lengths
        if lengths is not None and not (_are_counts(lengths) and len(lengths) == 2):
            raise ValueError(
                f"`plan_lengths` is {lengths!r}: give the fewest and the most actions of the "
                "expert's plan, such as [3, 6], or null"
            )
        if lengths is not None and lengths[0] > lengths[1]:
            raise ValueError(f"`plan_lengths` is {list(lengths)}: give the smaller number first")

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `test` or `all`, in AgentGym's order.

        Raises:
            ValueError: there is no such split, or the options leave nothing for it.
        """
        if split not in SPLITS:
            raise ValueError(f"textcraft has no split {split!r}: it has {', '.join(SPLITS)}")
        goals = self._goals()
        test_goals = held_out_goals(recipe_book(), goals)
        tasks: list[Task] = []
        for goal in goals:
            shared = self.held_out == "instances"
            num_test = self.test_instances if shared or goal in test_goals else 0
            num_train = self.train_instances if shared or goal not in test_goals else 0
            instances = self._puzzles.instances(goal, num_test + num_train)
            parts = {"test": instances[:num_test], "train": instances[num_test:], "all": instances}
            tasks += [make_task(recipe_book(), goal, instance) for instance in parts[split]]
        if not tasks:
            raise ValueError(
                f"the options leave {len(goals)} goals, too few for the split {split!r}: allow "
                "more goals, or share them between the splits with `held_out: instances`"
            )
        return tasks

    def task(self, item_id: str) -> Task:
        """The task that AgentGym's data files call by this id, such as "textcraft_12".

        Raises:
            ValueError: the id is of another form.
        """
        goal, instance = read_task(recipe_book(), Task(id=item_id))
        return make_task(recipe_book(), goal, instance, item_id)

    @property
    def splits(self) -> Sequence[str]:
        """What `tasks` knows."""
        return SPLITS

    async def open(self) -> TextCraftSession:
        """A new session, before its first reset."""
        return TextCraftSession(self._puzzles, self._phrases)

    def instructions(self) -> str:
        """The rules and commands; nothing in the short form, whose openings show by example."""
        return INSTRUCTIONS if self.prompt == "long" else ""

    @property
    def action_format(self) -> ActionFormat:
        """A line `Action: …` in the long form, the bare command in the short one."""
        return ActionLine() if self.prompt == "long" else WholeReply(instruction="")

    def corpus(self) -> Iterable[str]:
        """Everything that the world says and, of the chosen goals, all that it may show."""
        yield self.instructions()
        yield from (self.action_format.instructions(thought) for thought in (False, True))
        yield from self._phrases.templates()
        yield "0 1 2 3 4 5 6 7 8 9"
        yield "get craft using inventory"
        recipes = {
            str(recipe)
            for goal in self._goals()
            for candidates in self._puzzles.candidates(goal)
            for recipe in candidates
        }
        yield from sorted(recipes)

    @property
    def _phrases(self) -> Phrases:
        return LONG if self.prompt == "long" else SHORT

    @property
    def _puzzles(self) -> Puzzles:
        book = recipe_book()
        return Puzzles(
            book=book if self.tags else book.without_kinds,
            num_distractors=self.num_distractors,
            alternatives=self.alternatives,
        )

    def _goals(self) -> list[str]:
        combine = sum if self.held_out == "instances" else max
        num_instances = combine((self.train_instances, self.test_instances))
        goals = matching_goals(self._puzzles, self.depths, self.plan_lengths, num_instances)
        if len(goals) < (self.num_goals or 1):
            raise ValueError(
                f"{len(goals)} goals match `depths`, `plan_lengths` and `tags` and can be shown in "
                f"{num_instances} different ways, but {self.num_goals or 1} are needed: allow more "
                "goals, or ask for fewer with `num_goals`"
            )
        if self.num_goals is None:
            return goals
        return sample_goals(goals, self.num_goals, self.goal_seed)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_counts(values: Any) -> bool:
    return isinstance(values, tuple) and bool(values) and all(_is_count(v, 1) for v in values)


def _check_count(key: str, value: Any, least: int) -> None:
    if not _is_count(value, least):
        raise ValueError(f"`{key}` is {value!r}: give a whole number of at least {least}")


def _check_choice(key: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"`{key}` is {value!r}: give {' or '.join(choices)}")
