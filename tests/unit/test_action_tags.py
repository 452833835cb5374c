"""Actions that stand in tags: what counts as one."""

import time

import attrs
import pytest

from agentgym_core.actions import ActionTags
from agentgym_core.errors import FormatError

TAGS = ActionTags(("search", "answer"))
SEARCH, ANSWER = "<search>capital of France</search>", "<answer>Paris</answer>"


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        (SEARCH, SEARCH),
        (ANSWER, ANSWER),
        (f"I must look that up.\n{SEARCH}", SEARCH),
        (f"{SEARCH} Let us see.", SEARCH),
        ("<SEARCH>capital of France</Search>", SEARCH),
        ("<search>\n  capital\tof\n\nFrance </search>", SEARCH),
        ("<answer>a < b, or <b>bold</b></answer>", "<answer>a < b, or <b>bold</b></answer>"),
        (f"<think>{SEARCH} would do, or {ANSWER}</think>{ANSWER}", ANSWER),
        (f"<THINK>{SEARCH}</THINK>\n{ANSWER}", ANSWER),
        (f"<think>a</think>{ANSWER}<think>{SEARCH}</think>", ANSWER),
        (f"perhaps {SEARCH}</think>{ANSWER}", ANSWER),  # the prompt opened the thinking
        (f"<think>a <think>b</think> {SEARCH}</think>{ANSWER}", ANSWER),
        (f"{ANSWER}<think>{SEARCH}", ANSWER),  # cut while it thought on
        (f"{SEARCH}<answer>Par", SEARCH),  # cut
        (f"A <search> will help. {SEARCH}", SEARCH),
        ("<search>capital <answer>Paris</answer></search>", ANSWER),  # the innermost
        (f"<search></search><answer> </answer>{ANSWER}", ANSWER),
    ],
)
def test_what_names_one_action(reply, action):
    assert TAGS.parse(reply) == action


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "no action"),
        ("Paris", "no action"),
        ("search: capital of France", "no action"),
        ("<search>capital of France", "no action"),
        ("capital of France</search>", "no action"),
        ("<search>capital of France</answer>", "no action"),
        ("<search></search>", "no action"),
        ("<answer> \n </answer>", "no action"),
        ("< search >x</ search >", "no action"),
        ("<lookup>x</lookup>", "no action"),
        ("<ſearch>x</ſearch>", "no action"),  # a long s is no s
        (f"<think>{SEARCH}</think>", "no action"),
        (f"<think>{SEARCH}", "no action"),
        (f"{SEARCH}</think>", "no action"),
        (SEARCH + ANSWER, "2 actions"),
        (SEARCH + SEARCH, "2 actions"),
        (f"{ANSWER} or {ANSWER}, {SEARCH}", "3 actions"),
    ],
)
def test_what_does_not(reply, problem):
    with pytest.raises(FormatError) as caught:
        TAGS.parse(reply)
    assert str(caught.value) == (
        f"Your reply named {problem}. Name exactly one: <search>…</search> or <answer>…</answer>"
    )


@pytest.mark.parametrize("action", [SEARCH, ANSWER, "<search>(a|b)* \\1 ünïcödé 中文 🙂</search>"])
def test_what_is_rendered_is_parsed(action):
    assert TAGS.parse(TAGS.render(action)) == action
    thought = f"{SEARCH} is done"
    assert TAGS.parse(TAGS.render(action, thought)) == action
    assert TAGS.render(action, "I know.") == f"<think>I know.</think>\n{action}"


def test_instructions_show_the_forms():
    for thought in (False, True):
        text = TAGS.instructions(thought)
        assert text.endswith("\n<search>…</search> or <answer>…</answer>")
        assert ("<think>" in text) == thought


@pytest.mark.parametrize(
    "reply", ["<search>" * 20_000, "<think>" * 20_000, "</think>" * 20_000, "<" * 100_000]
)
def test_long_nonsense_is_read_in_time(reply):
    start = time.perf_counter()
    with pytest.raises(FormatError):
        TAGS.parse(reply)
    assert time.perf_counter() - start < 2


def test_it_is_plain_data():
    assert attrs.asdict(ActionTags(["search", "answer"])) == {"tags": ("search", "answer")}
    assert ActionTags(["a-b", "c_2"]).parse("<a-b>x</a-b>") == "<a-b>x</a-b>"


@pytest.mark.parametrize(
    "tags", [(), ("Search",), ("a", "a"), ("think", "answer"), ("a b",), ("",)]
)
def test_bad_tags(tags):
    with pytest.raises(ValueError, match=r"`tags` is .*: give names in lower case"):
        ActionTags(tags)
