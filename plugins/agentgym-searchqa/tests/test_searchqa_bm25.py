"""The index: what it finds, in which order, and how it is built."""

import asyncio
import json
import math
import os
import random
import subprocess
import sys
import threading
from collections import Counter

import pytest

from agentgym_searchqa import bm25, build
from agentgym_searchqa.bm25 import Bm25, in_memory, open_index
from agentgym_searchqa.retrieval import Passage, RetrievalError, to_passage

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aou" for c in "kmp"]  # stems of themselves


def passage(passage_id, text, title=""):
    return Passage(id=str(passage_id), title=title, text=text)


def ids(found):
    return [each.id for each in found]


def write_corpus(path, passages):
    rows = [{"id": each.id, "contents": each.contents} for each in passages]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def formula(query, texts, k1=1.2, b=0.75):
    """BM25 of every text, by its definition."""
    words = [text.split() for text in texts]
    mean = sum(map(len, words)) / len(words)
    scores = [0.0] * len(texts)
    for term in dict.fromkeys(query.split()):
        containing = sum(term in text for text in words)
        idf = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
        for place, text in enumerate(words):
            count = Counter(text)[term]
            norm = k1 * (1 - b + b * len(text) / mean)
            scores[place] += idf * count * (k1 + 1) / (count + norm)
    return scores


def test_the_order_is_that_of_the_formula():
    draw = random.Random(5)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 30))) for _ in range(200)]
    index = in_memory(passage(place, text) for place, text in enumerate(texts))
    for _ in range(20):
        query = " ".join(draw.choices(WORDS, k=3))
        scores = formula(query, texts)
        found = index.look_up(query, 5)
        # tantivy rounds scores to single precision
        best = sorted(scores, reverse=True)[:5]
        assert [scores[int(each.id)] for each in found] == pytest.approx(best, rel=1e-4)


def test_ties_are_in_the_order_of_ids():
    same = [passage(number, "a red house") for number in (30, 4, 100, 21, 3, 200, 5, 6)]
    better = passage(500, "red red house")
    index = in_memory([*same, better])
    assert ids(index.look_up("red", 4)) == ["500", "3", "4", "5"]
    assert ids(in_memory([better, *reversed(same)]).look_up("red", 4)) == ["500", "3", "4", "5"]
    assert ids(index.look_up("red", 20)) == ["500", "3", "4", "5", "6", "21", "30", "100", "200"]


def test_words_are_matched_by_their_stems_without_accents():
    index = in_memory([passage(1, "the capitals of São Tomé"), passage(2, "something else")])
    for query in ("CAPITAL", "sao", "São", "tome?"):
        assert ids(index.look_up(query, 3)) == ["1"], query


def test_titles_count_and_come_back():
    index = in_memory([passage(1, "It is a town.", "Leeds"), passage(2, "It is a town.", "York")])
    (found,) = index.look_up("york", 3)
    assert found == passage(2, "It is a town.", "York")


@pytest.mark.parametrize(
    "query",
    [
        '"red', "red AND", "(red", "red)", "title:red", "red^2~", "[red TO", "-red", "+red", "red*",
        "contents:red || \\", "/red[/", "red \x00 \u202e 🙂", "red " * 5000, "x" * 10_000 + " red",
    ],
)  # fmt: skip
def test_any_text_is_a_query(query):
    index = in_memory([passage(1, "a red house")])
    found = index.look_up(query, 3)
    assert ids(found) == ([] if len(query) > 10_000 and query[0] == "x" else ["1"])


def test_of_long_queries_the_first_words_are_looked_up():
    index = in_memory([passage(1, "red"), passage(2, "blue")])
    assert ids(index.look_up(" ".join(["red", *(f"w{n}" for n in range(63)), "blue"]), 3)) == ["1"]
    assert ids(index.look_up(" ".join(["red", *["w"] * 63, "blue"]), 3)) == ["1", "2"]


@pytest.mark.parametrize("query", ["", "  ", "?!", "🙂", "blue"])
def test_nothing_matches(query):
    assert in_memory([passage(1, "a red house")]).look_up(query, 3) == []
    assert in_memory([]).look_up(query, 3) == []


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Leeds"\nA town.\nIn England.', "Leeds", "A town.\nIn England."),
        ('"The "best" of"\nA record.', 'The "best" of', "A record."),
        ("No title here.", "", "No title here."),
        ("Two\nlines.", "", "Two\nlines."),
        ('"Only a title"', "Only a title", ""),
    ],
)
def test_contents(contents, title, text):
    assert to_passage(3, contents) == Passage(id="3", title=title, text=text)


def test_an_index_is_built_once(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "c.jsonl", [passage(n, f"word{n} red") for n in range(50)])
    settings = Bm25(corpus=corpus)
    index = open_index(settings)
    assert len(index) == 50
    assert ids(index.look_up("word7", 3)) == ["7"]
    assert open_index(settings) is index, "all sessions share it"
    (kept,) = (tmp_path / "c.jsonl.bm25").glob("[!l]*")

    monkeypatch.setattr(bm25, "_build", None)
    bm25._opened.cache_clear()
    assert ids(open_index(settings).look_up("word7", 3)) == ["7"], "a later process opens it"
    assert kept.stat().st_mode & 0o055 == 0o055, "other users may read it"
    monkeypatch.undo()

    write_corpus(corpus, [passage(1, "blue")])
    changed = open_index(settings)
    assert (len(changed), len(index)) == (1, 50)
    assert ids(index.look_up("word7", 3)) == ["7"], "who has the old one open searches on"


def test_a_corpus_that_only_changed_in_time_is_indexed_anew(tmp_path):
    corpus = write_corpus(tmp_path / "c.jsonl", [passage(1, "red")])
    first = bm25._key(corpus)
    write_corpus(corpus, [passage(1, "tan")])
    os.utime(corpus, ns=(1, 1))
    assert bm25._key(corpus) != first


def test_an_interrupted_build_leaves_nothing_that_is_taken_for_an_index(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "c.jsonl", [passage(1, "red")])
    settings = Bm25(corpus=corpus, index=tmp_path / "index")

    def killed(index, passages):
        raise KeyboardInterrupt

    monkeypatch.setattr(bm25, "_fill", killed)
    with pytest.raises(KeyboardInterrupt):
        open_index(settings)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["lock"]
    monkeypatch.undo()
    (tmp_path / "index" / ".building-left-by-kill-9").mkdir()
    assert len(open_index(settings)) == 1
    assert not list((tmp_path / "index").glob(".building-*"))


def test_threads_and_processes_build_it_once(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "c.jsonl", [passage(n, f"w{n} red") for n in range(2000)])
    code = (
        "import sys, agentgym_searchqa.bm25 as bm25\n"
        "build = bm25._build\n"
        "def counted(*given):\n    print('built')\n    build(*given)\n"
        "bm25._build = counted\n"
        "print(len(bm25.open_index(bm25.Bm25(corpus=sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(corpus)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].split() for process in both)
    assert said == [["2000"], ["built", "2000"]]

    monkeypatch.setattr(bm25, "_build", None)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(open_index(Bm25(corpus=corpus))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_built_twice_it_finds_the_same(tmp_path):
    draw = random.Random(7)
    passages = [passage(n, " ".join(draw.choices(WORDS, k=12))) for n in range(3000)]
    corpus = write_corpus(tmp_path / "c.jsonl", passages)
    one, two = (open_index(Bm25(corpus=corpus, index=tmp_path / name)) for name in "ab")
    three = in_memory(passages)
    for _ in range(50):
        query = " ".join(draw.choices(WORDS, k=2))
        found = one.look_up(query, 5)
        assert found == two.look_up(query, 5) == three.look_up(query, 5)


def test_searches_do_not_hold_the_loop():
    index = in_memory([passage(1, "red")])
    in_thread = []
    look_up = index.look_up
    index.look_up = lambda *given: in_thread.append(threading.current_thread()) or look_up(*given)
    found = asyncio.run(index.search(["red", "blue"], 3))
    assert [ids(each) for each in found] == [["1"], []]
    assert threading.main_thread() not in in_thread
    assert len(in_thread) == 2


@pytest.mark.parametrize(
    "line",
    ["red", "[]", '{"id": 1}', '{"contents": "x"}', '{"id": 1, "contents": 5}',
     '{"id": {}, "contents": "x"}'],
)  # fmt: skip
def test_a_line_that_is_no_passage(tmp_path, line):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": 0, "contents": "fine"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=r"`retriever.bm25.corpus`: line 3 of .* is no passage"):
        open_index(Bm25(corpus=corpus))
    assert not list((tmp_path / "c.jsonl.bm25").glob("[!l]*"))


def test_a_corpus_or_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"`retriever.bm25.corpus`: there is no file .*: give"):
        open_index(Bm25(corpus=tmp_path / "none.jsonl"))
    corpus = write_corpus(tmp_path / "c.jsonl", [passage(1, "red")])
    with pytest.raises(RetrievalError, match=r"the folder of `retriever.bm25.index` is writable"):
        open_index(Bm25(corpus=corpus, index=corpus / "below-a-file"))


def test_building_ahead(tmp_path):
    corpus = write_corpus(tmp_path / "c.jsonl", [passage(n, "red") for n in range(1200)])
    assert build.main([str(corpus)]).startswith(f"{corpus}.bm25: 1,200 passages, ")
    assert build.main([str(corpus), str(tmp_path / "i")]).startswith(f"{tmp_path}/i: 1,200 ")
    with pytest.raises(SystemExit, match="usage: "):
        build.main([])
    with pytest.raises(SystemExit, match=r"error: `retriever.bm25.corpus`: there is no file"):
        build.main([str(tmp_path / "none")])
