"""The question-answering sets, from files of both layouts, with AgentGym's ids."""

import json
from collections import Counter

import pytest

from agentgym_core.types import Task
from agentgym_searchqa.environment import Retrieval, SearchQA
from agentgym_searchqa.question_files import PARTS
from agentgym_searchqa.server import Server

RETRIEVER = Retrieval(server=Server(url="http://127.0.0.1:9/retrieve"))
FILES = [part.file for part in PARTS]


def write(path, names, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": f"row_{n}", "question": f"Who is {n}?", "golden_answers": [n, n.upper()], **more}
        for n in names
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def flash_rag(folder, num=2):
    for part in PARTS:
        write(folder / part.file, [f"{part.set}{n}" for n in range(num)])
    return folder


def searchqa(folder, **options):
    return SearchQA(data=folder, retriever=RETRIEVER, **options)


def test_agentgyms_ranges():
    """The last index of every set, as AgentGym gives them."""
    ends = [(part.set, part.split, part.first + part.size - 1) for part in PARTS]
    assert ends == [
        ("nq", "test", 3609),
        ("triviaqa", "test", 14922),
        ("popqa", "test", 29189),
        ("hotpotqa", "test", 36594),
        ("2wikimultihopqa", "test", 49170),
        ("musique", "test", 51587),
        ("bamboogle", "test", 51712),
        ("nq", "train", 130880),
        ("hotpotqa", "train", 221327),
    ]


def test_a_folder_for_each_set(tmp_path):
    environment = searchqa(flash_rag(tmp_path))
    test = environment.tasks("test")
    assert [task.id for task in test] == [
        f"searchqa_{first + n}"
        for first in (0, 3610, 14923, 29190, 36595, 49171, 51588)
        for n in (0, 1)
    ]
    assert test[3] == Task(
        id="searchqa_3611",
        category="triviaqa",
        data={"question": "Who is triviaqa1?", "answers": ["triviaqa1", "TRIVIAQA1"]},
    )
    assert [task.id for task in environment.tasks("train")] == [
        "searchqa_51713", "searchqa_51714", "searchqa_130881", "searchqa_130882",
    ]  # fmt: skip
    assert environment.splits == ("train", "test", "sample")
    assert environment.task("searchqa_130881").data["answers"] == ["hotpotqa0", "HOTPOTQA0"]
    with pytest.raises(ValueError, match=r"task 'searchqa_2' is no question here: ids are such as"):
        environment.task("searchqa_2")


def test_only_the_files_of_the_sets_are_read(tmp_path):
    write(tmp_path / "nq" / "test.jsonl", ["a"])
    write(tmp_path / "bamboogle" / "test.jsonl", ["b"])
    environment = searchqa(tmp_path, sets=["nq", "bamboogle"])
    assert [task.id for task in environment.tasks("test")] == ["searchqa_0", "searchqa_51588"]
    with pytest.raises(ValueError, match=r"^`data`: there is no .*nq/train.jsonl\. Put there a"):
        environment.tasks("train")
    with pytest.raises(ValueError, match=r"the split 'train' has no questions of `sets` \['bamboo"):
        searchqa(tmp_path, sets=["bamboogle"]).tasks("train")


def test_a_file_for_each_split(tmp_path):
    write(tmp_path / "train.jsonl", ["a"])
    write(tmp_path / "test.jsonl", [str(n) for n in range(14924)])
    environment = searchqa(tmp_path)
    assert [task.id for task in environment.tasks("train")] == ["searchqa_51713"]
    test = environment.tasks("test")
    assert [task.id for task in test] == [f"searchqa_{n}" for n in range(14924)]
    assert Counter(task.category for task in test) == {"nq": 3610, "triviaqa": 11313, "popqa": 1}
    assert test[3610].category == "triviaqa"
    (only,) = searchqa(tmp_path, sets=["popqa"]).tasks("test")
    assert (only.id, only.data["question"]) == ("searchqa_14923", "Who is 14923?")


def test_a_row_may_name_its_set(tmp_path):
    write(tmp_path / "test.jsonl", ["a"], data_source="mine")
    assert [task.category for task in searchqa(tmp_path).tasks("test")] == ["mine"]


def test_a_sample_of_the_papers_size(tmp_path):
    environment = searchqa(flash_rag(tmp_path, num=120))
    chosen = environment.tasks("sample")
    sets = dict.fromkeys((part.set for part in PARTS if part.split == "test"), 50)
    assert Counter(task.category for task in chosen) == sets | {"musique": 100}
    assert len(chosen) == 400
    assert {task.id for task in chosen} < {task.id for task in environment.tasks("test")}
    indices = [int(task.id.removeprefix("searchqa_")) for task in chosen]
    assert indices == sorted(indices)
    assert (indices[:3], sum(indices)) == ([1, 3, 5], 11736433)  # stays, or figures do not compare


def test_questions_end_in_a_question_mark(tmp_path):
    (tmp_path / "test.jsonl").write_text(
        '{"question": " who won ", "golden_answers": ["I"]}\n\n'
        '{"question": "Why?", "golden_answers": ["So"]}\n'
    )
    texts = [task.data["question"] for task in searchqa(tmp_path).tasks("test")]
    assert texts == ["who won?", "Why?"]


def test_short_files_are_warned_of(tmp_path, caplog):
    write(tmp_path / "bamboogle" / "test.jsonl", [str(n) for n in range(124)])
    searchqa(tmp_path, sets=["bamboogle"]).tasks("test")
    assert "has 124 questions, the set 125" in caplog.text


def test_long_files_are_refused(tmp_path):
    write(tmp_path / "bamboogle" / "test.jsonl", [str(n) for n in range(126)])
    with pytest.raises(ValueError, match=r"has 126 questions, but there are ids for 125: shorten"):
        searchqa(tmp_path, sets=["bamboogle"]).tasks("test")


@pytest.mark.parametrize(
    "line",
    [
        "Who?",
        "[]",
        '{"question": "Who?"}',
        '{"question": 1, "golden_answers": ["x"]}',
        '{"question": "Who?", "golden_answers": "x"}',
        '{"question": "Who?", "golden_answers": []}',
        '{"question": "Who?", "golden_answers": [1]}',
    ],
)
def test_a_row_that_is_no_question(tmp_path, line):
    (tmp_path / "test.jsonl").write_text(
        '{"question": "a", "golden_answers": ["b"]}\n' + line + "\n"
    )
    with pytest.raises(ValueError, match=r"^`data`: line 2 of .*test.jsonl is no question: exp"):
        searchqa(tmp_path).tasks("test")


def test_an_empty_file(tmp_path):
    (tmp_path / "test.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"test.jsonl has no questions"):
        searchqa(tmp_path).tasks("test")
