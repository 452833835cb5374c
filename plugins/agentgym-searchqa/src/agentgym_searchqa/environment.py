"""SearchQA: answer a question by searching a corpus."""

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import attrs

from agentgym_core.actions import ActionFormat, ActionTags
from agentgym_core.protocols import Environment
from agentgym_core.types import Task
from agentgym_searchqa import phrases
from agentgym_searchqa.bm25 import Bm25
from agentgym_searchqa.question_files import SAMPLE_SIZE, SAMPLE_SIZES, SETS, read_questions
from agentgym_searchqa.questions import Question, sample
from agentgym_searchqa.retrieval import Retriever
from agentgym_searchqa.server import Server
from agentgym_searchqa.session import Rules, SearchQASession

RewardPart = Literal["em", "f1"]
FACTBOOK_SETS = ("one-hop", "two-hop")


@attrs.frozen(kw_only=True)
class Retrieval:
    """Where searches go: one of these."""

    bm25: Bm25 | None = None
    """A corpus of yours, searched in this process."""
    server: Server | None = None
    """A retrieval server."""

    def __attrs_post_init__(self) -> None:
        if (self.bm25 is None) == (self.server is None):
            raise ValueError(
                "give one of `bm25` and `server`, such as {bm25: {corpus: wiki-18.jsonl}} or "
                "{server: {url: http://127.0.0.1:8000/retrieve}}; without `retriever` the small "
                "world is searched"
            )


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class SearchQA(Environment):
    """Answer a question; searches show passages of a corpus. Reward 1 for the right answer, else 0.

    By itself it asks about the countries of the CIA World Factbook and searches there. With `data`
    and `retriever` it is the SearchQA of AgentGym-RL and Search-R1 (Jin et al., 2025,
    https://arxiv.org/abs/2503.09516).
    """

    data: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """A folder with the question-answering sets, see the README; null for questions about the
    Factbook."""
    sets: tuple[str, ...] | None = attrs.field(default=None, converter=_to_tuple)
    """Ask only the questions of these, such as [nq, hotpotqa] or, without `data`, [one-hop]."""
    num_questions: int | None = None
    """Keep so many questions of each split; null for all."""
    question_seed: int = 0
    """Which questions `num_questions` keeps."""
    retriever: Retrieval | None = None
    """Where searches go; null for the passages of the Factbook."""
    num_passages: int = 3
    """Most passages that a search shows."""
    max_passage_chars: int = 1000
    """Most characters that it shows of each."""
    max_searches: int | None = None
    """After so many, the policy can only answer; null leaves that to the horizon."""
    reward: RewardPart = "em"
    """What an answer is paid: `em`, 1 if it is right; or `f1`, the words it shares with the best
    right answer."""
    endless_guesses: bool = False
    """A wrong answer costs nothing and does not end the episode, as in AgentGym."""

    def __attrs_post_init__(self) -> None:
        for key, least in (("question_seed", 0), ("num_passages", 1), ("max_passage_chars", 20)):
            _check_count(key, getattr(self, key), least)
        for key, least in (("num_questions", 1), ("max_searches", 0)):
            if getattr(self, key) is not None:
                _check_count(key, getattr(self, key), least)
        if self.reward not in get_args(RewardPart):
            raise ValueError(f"`reward` is {self.reward!r}: give em or f1")
        if not isinstance(self.endless_guesses, bool):
            raise ValueError(f"`endless_guesses` is {self.endless_guesses!r}: give true or false")
        if self.endless_guesses and self.reward == "f1":
            raise ValueError(
                "`endless_guesses` would pay every guess its `reward: f1`: give `reward: em`"
            )
        if not isinstance(self.retriever, Retrieval | None):
            raise ValueError(
                f"`retriever` is {self.retriever!r}: in Python, give a Retrieval, such as "
                "Retrieval(bm25=Bm25(corpus='corpus.jsonl'))"
            )
        if self.data is not None and self.retriever is None:
            raise ValueError(
                "`data` asks about more than the Factbook knows: give a `retriever`, such as "
                "{server: {url: http://127.0.0.1:8000/retrieve}}"
            )
        self._check_sets()

    def tasks(self, split: str) -> Sequence[Task]:
        """The questions of a split, in the order of their index.

        Raises:
            ValueError: there is no such split, or nothing in it; or a file of `data` is missing or
                is not what it should be.
        """
        questions = self._questions(split)
        if self.retriever is not None and self.retriever.bm25 is not None:
            self.retriever.bm25.check()  # a run that lacks its corpus stops here, before it plays
        if self.num_questions is not None:
            questions = sample(questions, self.num_questions, self.question_seed)
        if not questions:
            raise ValueError(
                f"the split {split!r} has no questions of `sets` {list(self.sets or ())}: add a "
                "set that has some"
            )
        return [question.to_task() for question in questions]

    def task(self, item_id: str) -> Task:
        """The task that a data file calls by this id, such as "searchqa_12".

        Raises:
            ValueError: there is no such question.
        """
        return self._find(item_id).to_task()

    @property
    def splits(self) -> Sequence[str]:
        """What `tasks` knows: of the seven sets also a `sample` of the size of the paper's."""
        return ("train", "test") if self.data is None else ("train", "test", "sample")

    async def open(self) -> SearchQASession:
        """A new session, before its first reset. The first one opens the index or builds it.

        Raises:
            ValueError: the corpus is missing or is none.
            RetrievalError: the index cannot be built or read.
        """
        rules = Rules(
            num_passages=self.num_passages,
            max_passage_chars=self.max_passage_chars,
            max_searches=self.max_searches,
            reward=self.reward,
            endless_guesses=self.endless_guesses,
        )
        return SearchQASession(rules, await asyncio.to_thread(self._retriever), self._find)

    def instructions(self) -> str:
        """What there is to do."""
        ending = phrases.GOES_ON if self.endless_guesses else phrases.ENDS
        text = phrases.INSTRUCTIONS.format(ending=ending)
        if self.max_searches is None:
            return text
        return text + phrases.MAX_SEARCHES.format(num=self.max_searches)

    @property
    def action_format(self) -> ActionFormat:
        """`<search>…</search>` or `<answer>…</answer>`, and thoughts between `<think>` tags."""
        return ActionTags(("search", "answer"))

    def corpus(self) -> Iterable[str]:
        """What the world says, the questions and answers and, of the Factbook, what experts see.

        A policy that searches for something else may be shown words that are not among these.
        """
        yield self.instructions()
        yield from (self.action_format.instructions(thought) for thought in (False, True))
        yield from phrases.PHRASES
        shown: dict[str, None] = {}
        for split in ("train", "test"):
            for task in self.tasks(split):
                yield from (task.data["question"], *task.data["answers"])
                shown |= dict.fromkeys(task.data.get("searches", ()))
        if self.retriever is None:
            yield from self._shown(shown)

    def _shown(self, searches: Iterable[str]) -> Iterable[str]:
        from agentgym_searchqa.factbook import index

        for search in searches:
            yield f"<search>{search}</search>"
            passages = index().look_up(search, self.num_passages)
            yield phrases.information(passages, self.max_passage_chars)

    def _retriever(self) -> Retriever:
        from agentgym_searchqa import bm25, factbook, server

        if self.retriever is None:
            return factbook.index()
        if self.retriever.bm25 is not None:
            return bm25.open_index(self.retriever.bm25)
        assert self.retriever.server is not None, "one of both is given"
        return server.ServerClient(self.retriever.server)

    def _questions(self, split: str) -> Sequence[Question]:
        if split not in self.splits:
            raise ValueError(f"searchqa has no split {split!r}: it has {', '.join(self.splits)}")
        if self.data is not None:
            found = read_questions(self.data, "train" if split == "train" else "test", self.sets)
            return _stratified(found) if split == "sample" else found
        from agentgym_searchqa.factbook_questions import questions

        return [q for q in questions(split) if self.sets is None or q.set in self.sets]

    def _find(self, task_id: str) -> Question:
        for split in ("test", "train"):
            if found := _by_id(self.data, self.sets, split).get(task_id):
                return found
        raise ValueError(
            f"task {task_id!r} is no question here: ids are such as searchqa_12 with `data`, and "
            "searchqa_capital-pl without"
        )

    def _check_sets(self) -> None:
        known = FACTBOOK_SETS if self.data is None else SETS
        if self.sets is not None and not (
            isinstance(self.sets, tuple) and self.sets and set(self.sets) <= set(known)
        ):
            raise ValueError(f"`sets` is {self.sets!r}: give a list of some of {', '.join(known)}")


@functools.lru_cache(maxsize=16)
def _by_id(data: Path | None, sets: tuple[str, ...] | None, split: str) -> Mapping[str, Question]:
    if data is not None:
        return {q.id: q for q in read_questions(data, split, sets)}
    from agentgym_searchqa.factbook_questions import questions

    return {q.id: q for q in questions(split) if sets is None or q.set in sets}


def _stratified(questions: Sequence[Question]) -> Sequence[Question]:
    """As many of each set as the paper's test set has, always the same."""
    by_set: dict[str, list[Question]] = {}
    for question in questions:
        by_set.setdefault(question.set, []).append(question)
    return [
        question
        for name, those in by_set.items()
        for question in sample(those, SAMPLE_SIZES.get(name, SAMPLE_SIZE), 0)
    ]


def _check_count(key: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{key}` is {value!r}: give a whole number of at least {least}")
