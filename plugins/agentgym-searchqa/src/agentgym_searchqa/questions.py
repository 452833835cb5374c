"""Questions and their answers, as tasks."""

from collections.abc import Sequence

import attrs

from agentgym_core.seeds import derive_seed
from agentgym_core.types import Task


@attrs.frozen(kw_only=True)
class Question:
    """A question, with every answer that is right."""

    id: str
    """Of its task."""
    text: str
    answers: tuple[str, ...]
    """Those accepted; an expert gives the first."""
    set: str
    """Where it comes from: `nq`, `two-hop`, …"""
    searches: tuple[str, ...] = ()
    """What an expert looks up, in order, before it answers."""

    def to_task(self) -> Task:
        """The task that asks it."""
        data = {"question": self.text, "answers": list(self.answers)}
        if self.searches:
            data["searches"] = list(self.searches)
        return Task(id=self.id, category=self.set, data=data)


def to_question(task: Task) -> Question:
    """The question of a task that carries it.

    Raises:
        ValueError: its data holds none.
    """
    data = task.data
    lists = [data.get("answers"), data.get("searches", [])]
    if not isinstance(data.get("question"), str) or not all(
        isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        for texts in lists
    ):
        raise ValueError(
            f"task {task.id!r} with data {dict(data)!r} asks nothing: give the id of a question "
            "that there is, or data such as {'question': '…?', 'answers': ['…']}"
        )
    answers, searches = (tuple(texts or ()) for texts in lists)
    return Question(
        id=task.id,
        text=data["question"],
        answers=answers,
        set=task.category,
        searches=searches or (data["question"],),
    )


def sample(questions: Sequence[Question], num: int, seed: int) -> list[Question]:
    """So many of the questions, in their order; of more, the others stay."""
    ranked = sorted(questions, key=lambda q: derive_seed("searchqa", "sample", seed, q.id))
    chosen = {question.id for question in ranked[:num]}
    return [question for question in questions if question.id in chosen]
