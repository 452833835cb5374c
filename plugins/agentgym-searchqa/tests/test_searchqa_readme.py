"""The README's code, transcript and tables are what they say."""

import ast
import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_core.catalog import Catalog
from agentgym_searchqa import plugin
from agentgym_searchqa.bm25 import Bm25
from agentgym_searchqa.environment import Retrieval, SearchQA
from agentgym_searchqa.factbook import passages
from agentgym_searchqa.question_files import PARTS
from agentgym_searchqa.server import Server

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.S | re.M)


def blocks(language):
    return [text for found, text in BLOCKS if found == language]


def test_the_example_prints_what_is_shown():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.parse(blocks("python")[0]), "README.md", "exec"), {})
    assert printed.getvalue() == blocks("text")[0]


def test_what_the_policy_is_told():
    assert SearchQA().instructions() + "\n" == blocks("text")[1]


OWN = SearchQA(
    data="my-questions", sets=["nq"], retriever=Retrieval(bm25=Bm25(corpus="my-corpus.jsonl"))
)


def test_questions_of_your_own(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (files,) = (text for text in blocks("text") if "my-questions" in text)
    for line in files.splitlines():
        path, row = line.split(maxsplit=1)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(row + "\n")
    (task,) = OWN.tasks("test")
    assert "has 1 questions" in caplog.text

    async def played():
        session = await OWN.open()
        await session.reset(task, 0)
        found = await session.step("<search>log of the Amber</search>")
        last = await session.step("<answer>Ines Varga</answer>")
        await session.close()
        return found.text, last.success

    text, success = asyncio.run(played())
    assert "Doc 1 (Title: The Amber) A ship built in Gdansk." in text
    assert success


def test_the_yaml_composes():
    catalog = Catalog.of_modules(plugin)
    built = [
        catalog.build("environment", yaml.safe_load(text)["environment"], "environment")
        for text in blocks("yaml")
    ]
    server = Retrieval(server=Server(url="http://127.0.0.1:8000/retrieve"))
    corpus = Bm25(corpus="wiki-18.jsonl", index="wiki-18.index")
    assert built == [
        SearchQA(),
        SearchQA(retriever=Retrieval(bm25=corpus)),
        SearchQA(retriever=server),
        SearchQA(data="data/searchqa", sets=["nq", "hotpotqa"], retriever=server),
        OWN,
        SearchQA(sets=["one-hop"], num_questions=8, num_passages=1, max_passage_chars=60),
    ]
    (evaluation,) = [yaml.safe_load(t).get("evaluation") for t in blocks("yaml") if "evaluat" in t]
    assert evaluation["split"] in built[3].splits


@pytest.mark.parametrize(
    ("cls", "heading"),
    [(SearchQA, "## Options"), (Bm25, "## Retrievers"), (Server, "A retrieval server, such")],
)
def test_the_tables_of_keys(cls, heading):
    rows = README.partition(heading)[2].partition("|---|---|---|\n")[2].partition("\n\n")[0]
    found = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\|", rows, re.M)
    assert [name for name, _ in found] == [field.name for field in attrs.fields(cls)]
    for (name, default), field in zip(found, attrs.fields(cls), strict=True):
        required = field.default is attrs.NOTHING
        assert default == "" if required else yaml.safe_load(default) == field.default, name


def test_the_table_of_sets():
    rows = re.findall(r"^\| (\w+) \| (\w+) \| `(\S+)` \| (\d+) to (\d+) \|$", README, re.M)
    assert [(a, b, c, int(d), int(e)) for a, b, c, d, e in rows] == [
        (part.set, part.split, part.file, part.first, part.first + part.size - 1) for part in PARTS
    ]


def test_the_counts():
    assert f"\n{len(passages()):,} passages, " in README
    rows = re.findall(r"^\| `(\S+-hop)` \| (\d+) \| (\d+) \|$", README, re.M)
    environment = SearchQA()
    train, test = (Counter(t.category for t in environment.tasks(s)) for s in ("train", "test"))
    assert {name: (int(a), int(b)) for name, a, b in rows} == {
        name: (train[name], test[name]) for name in train
    }


def test_the_command(tmp_path):
    (tmp_path / "wiki-18.jsonl").write_text(json.dumps({"id": 0, "contents": '"A"\nb'}))
    command = [sys.executable, *blocks("sh")[1].split()[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("wiki-18.index: 1 passages, ")
