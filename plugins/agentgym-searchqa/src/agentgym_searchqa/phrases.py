"""Everything the world says."""

from collections.abc import Sequence

from agentgym_searchqa.retrieval import Passage

INSTRUCTIONS = """\
You are asked a question. Answer it as briefly as you can: a name, a date or a few words, with no \
sentence around them.

Each turn you do one of two things:
- search: you are shown passages of a corpus that match your words best. Several searches, each \
for one fact, find more than a long one.
  Example: author of Middlemarch
- answer: {ending}
  Example: George Eliot"""

ENDS = "this ends the task, right or wrong."
GOES_ON = "a wrong answer is not counted, and you may go on."
MAX_SEARCHES = "\n\nYou have {num} searches at most."

QUESTION = "Question: {question}"
RIGHT = "That is right."
WRONG = "That is wrong."
WRONG_GO_ON = "That is wrong. Search on, or answer again."
NOTHING_FOUND = "No passage matches. Use other words."
NO_SEARCH_LEFT = "No search is left. Answer now: <answer>…</answer>"
NO_ACTION = "That was no search and no answer. Write <search>…</search> or <answer>…</answer>."


def information(passages: Sequence[Passage], max_chars: int) -> str:
    """What a search shows: each passage with its number and title, cut to so many characters."""
    shown = [
        f"Doc {number}{f' (Title: {passage.title})' if passage.title else ''} "
        f"{shortened(passage.text, max_chars)}"
        for number, passage in enumerate(passages, start=1)
    ]
    return "\n".join(["<information>", *(shown or [NOTHING_FOUND]), "</information>"])


def shortened(text: str, max_chars: int) -> str:
    """A text on one line, cut before a word so that it has at most so many characters.

    A cut is marked by `…`, which counts.
    """
    text = " ".join(text.split())
    if len(text) <= max_chars:
        return text
    kept = text[: max_chars - 1]
    if not text[max_chars - 1].isspace():
        kept = kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip()}…"


PHRASES = (
    QUESTION.format(question=""),
    RIGHT,
    WRONG,
    WRONG_GO_ON,
    NO_SEARCH_LEFT,
    NO_ACTION,
    information((), 0),
    information((Passage(id="", title=".", text="…"),), 1),
)
"""All of it, for the words of models from scratch."""
