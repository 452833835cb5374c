"""A question from reset to its end."""

import asyncio

import attrs
import pytest

from agentgym_core.types import Task
from agentgym_searchqa.questions import Question
from agentgym_searchqa.retrieval import Passage, RetrievalError
from agentgym_searchqa.session import Rules, SearchQASession

RULES = Rules(
    num_passages=2, max_passage_chars=30, max_searches=None, reward="em", endless_guesses=False
)
TASK = Task(
    id="searchqa_x",
    data={
        "question": "Who wrote the book?",
        "answers": ["Ann Lee", "A. Lee"],
        "searches": ["the book", "its author"],
    },
)
PASSAGES = [
    Passage(id="7", title="The book", text="A book of\nmany words by Ann Lee, of Leeds."),
    Passage(id="9", title="", text="Untitled."),
    Passage(id="11", title="Third", text="Never shown."),
]
SHOWN = """<information>
Doc 1 (Title: The book) A book of many words by Ann…
Doc 2 Untitled.
</information>"""


class Shelf:
    """Finds the same passages for every query but `nothing`, and fails for `broken`."""

    def __init__(self):
        self.asked = []
        self.num_closed = 0

    async def search(self, queries, k):
        self.asked += [(query, k) for query in queries]
        if "broken" in queries:
            raise RetrievalError("no connection")
        return [[] if query == "nothing" else PASSAGES[:k] for query in queries]

    async def close(self):
        self.num_closed += 1


def find(task_id):
    return Question(id=task_id, text=f"What is {task_id}?", answers=("an id",), set="nq")


def play(actions, task=TASK, **rules):
    """Reset, take the actions, and return what was seen."""

    async def played():
        session = SearchQASession(attrs.evolve(RULES, **rules), Shelf(), find)
        seen = [await session.reset(task, 0)]
        return seen + [await session.step(action) for action in actions]

    return asyncio.run(played())


def test_a_whole_episode():
    opening, found, end = play(["<search>the  book</search>", "<answer>ann lee.</answer>"])
    assert opening.text == "Question: Who wrote the book?"
    assert found.text == SHOWN
    assert dict(found.info) == {"query": "the book", "passages": ["7", "9"]}
    assert (found.reward, found.rewards, found.terminated) == (0.0, {}, False)
    assert end.text == "That is right."
    assert (end.reward, end.terminated, end.truncated, end.success) == (1.0, True, False, True)
    assert end.rewards == {"em": 1.0, "f1": 1.0}


def test_a_wrong_answer_ends_the_episode():
    """Or guesses would be free."""
    end = play(["<answer>Ann Bee</answer>"])[-1]
    assert (end.reward, end.terminated, end.success) == (0.0, True, False)
    assert end.text == "That is wrong."
    assert end.rewards == {"em": 0.0, "f1": 0.5}  # 1 word of 2 and 2
    with pytest.raises(RuntimeError, match="nothing can follow"):
        play(["<answer>Ann Bee</answer>", "<answer>Ann Lee</answer>"])


def test_endless_guesses():
    seen = play(["<answer>no</answer>", "<answer>A. Lee</answer>"], endless_guesses=True)
    assert [(o.reward, o.terminated, o.success) for o in seen[1:]] == [
        (0.0, False, False),
        (1.0, True, True),
    ]
    assert seen[1].text == "That is wrong. Search on, or answer again."


def test_f1_is_paid_and_success_stays_apart():
    end = play(["<answer>Ann</answer>"], reward="f1")[-1]
    assert end.reward == pytest.approx(2 / 3)
    assert not end.success


def test_searches_run_out():
    seen = play(
        ["<search>a</search>", "nonsense", "<search>b</search>", "<answer>Ann Lee</answer>"],
        max_searches=1,
    )
    assert seen[3].text == "No search is left. Answer now: <answer>…</answer>"
    assert not seen[3].terminated
    assert seen[4].success
    assert play(["<search>a</search>"], max_searches=0)[1].text.startswith("No search is left")


def test_nothing_found_is_said():
    found = play(["<search>nothing</search>"])[-1]
    assert found.text == "<information>\nNo passage matches. Use other words.\n</information>"
    assert found.info["passages"] == []


def test_a_broken_retriever_is_no_answer():
    with pytest.raises(RetrievalError, match="no connection"):
        play(["<search>broken</search>"])


@pytest.mark.parametrize(
    "action",
    [
        "",
        "Ann Lee",
        "<answer></answer>",
        "<search> \n </search>",
        "<answer>Ann Lee",
        "<search>x</answer>",
        "<think>x</think>",
        "x <answer>Ann Lee</answer>",
    ],
)
def test_anything_else_is_answered_in_words(action):
    answer = play([action])[-1]
    assert answer.text.startswith("That was no search and no answer. Write <search>")
    assert not answer.terminated


async def expert_actions(before, task=TASK, **rules):
    session = SearchQASession(attrs.evolve(RULES, **rules), Shelf(), find)
    await session.reset(task, 0)
    for action in before:
        await session.step(action)
    actions, ended = [], False
    while not ended and len(actions) < 9:
        actions.append(await session.expert_action())
        ended = (await session.step(actions[-1])).terminated
    assert await session.expert_action() is None
    assert await session.available_actions() == ()
    return actions


@pytest.mark.parametrize(
    ("before", "rules", "actions"),
    [
        ([], {}, ["the book", "its author", "Ann Lee"]),
        (["<search>its author</search>"], {}, ["the book", "Ann Lee"]),
        (["<search>x</search>", "nonsense"], {}, ["the book", "its author", "Ann Lee"]),
        (["<search>x</search>"], {"max_searches": 2}, ["the book", "Ann Lee"]),
        (["<answer>x</answer>"], {"endless_guesses": True}, ["the book", "its author", "Ann Lee"]),
        ([], {"max_searches": 0}, ["Ann Lee"]),
    ],
)
def test_the_expert_goes_on_from_anywhere(before, rules, actions):
    found = asyncio.run(expert_actions(before, **rules))
    tags = [f"<search>{text}</search>" for text in actions[:-1]]
    assert found == [*tags, f"<answer>{actions[-1]}</answer>"]


def test_a_task_without_searches_is_looked_up_as_it_stands():
    task = Task(id="searchqa_1", data={"question": "Who?", "answers": ["I"]})
    assert asyncio.run(expert_actions([], task)) == ["<search>Who?</search>", "<answer>I</answer>"]


def test_available_actions():
    async def listed(max_searches):
        session = SearchQASession(attrs.evolve(RULES, max_searches=max_searches), Shelf(), find)
        assert await session.available_actions() == ()
        await session.reset(TASK, 0)
        return await session.available_actions()

    assert asyncio.run(listed(None)) == (
        "<search>the book</search>",
        "<search>its author</search>",
        "<search>Who wrote the book?</search>",
    )
    assert asyncio.run(listed(0)) == ()


def test_an_id_alone_is_a_task():
    assert play([], Task(id="searchqa_5"))[0].text == "Question: What is searchqa_5?"


@pytest.mark.parametrize(
    "data",
    [
        {"question": 5, "answers": ["x"]},
        {"question": "Who?"},
        {"question": "Who?", "answers": "I"},
        {"question": "Who?", "answers": [1]},
        {"question": "Who?", "answers": ["I"], "searches": [None]},
    ],
)
def test_a_task_that_asks_nothing(data):
    with pytest.raises(ValueError, match=r"task 'searchqa_1' with data .* asks nothing: give"):
        play([], Task(id="searchqa_1", data=data))


def test_closing_lets_the_retriever_go():
    async def closed():
        session = SearchQASession(RULES, shelf := Shelf(), find)
        await session.reset(TASK, 0)
        await session.close()
        await session.close()
        with pytest.raises(RuntimeError, match="no task is under way"):
            await session.step("<answer>Ann Lee</answer>")
        return shelf

    assert asyncio.run(closed()).num_closed == 2
