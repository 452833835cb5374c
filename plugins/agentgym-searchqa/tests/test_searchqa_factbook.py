"""The small world: its passages and the questions that they answer."""

import re
import time
from collections import Counter

import pytest

from agentgym_searchqa import factbook, relations
from agentgym_searchqa.factbook import countries, passages, plain
from agentgym_searchqa.factbook_questions import questions
from agentgym_searchqa.relations import RELATIONS
from agentgym_searchqa.verdict import exact_match

ALL = {question.id: question for split in ("train", "test") for question in questions(split)}


def test_passages():
    by_id = {passage.id: passage for passage in passages()}
    assert len(by_id) == len(passages()) > 1500
    assert by_id["pl-government"].title == "Poland: Government"
    assert by_id["pl-government"].text.startswith(
        "Capital of Poland: Warsaw. Government type: parliamentary republic. National anthem: "
        '"Mazurek Dabrowskiego" (Dabrowski\'s Mazurka).'
    )
    assert by_id["pl-economy"].text.startswith(
        "Currency of Poland: zlotych (PLN). Exports - partners: "
    )
    assert by_id["pl-people"].text.startswith(
        "Nationality of Poland: noun Pole(s); adjective Polish. "
    )
    for passage in passages():
        assert not re.search(r"</?[a-z]", passage.text), passage.id
        assert "&nbsp" not in passage.text
        assert "  " not in passage.text


def test_plain_text():
    assert plain("<b>C&ocirc;te</b>  d'Ivoire,<br>\xa0a&amp;b ") == "Côte d'Ivoire, a&b"
    assert plain("a&amp;nbsp;b") == "a b"
    assert plain("other <1%, none >2%") == "other <1%, none >2%"


def test_the_countries():
    names = Counter(country.name for country in countries())
    assert len(names) > 240
    assert max(names.values()) == 1
    assert {"France", "United Arab Emirates", "Côte d'Ivoire", "Micronesia"} - set(names) == {
        "Micronesia"  # it has no short name
    }
    assert [country.code for country in countries()] == sorted(c.code for c in countries())


def test_the_questions():
    assert len(ALL) == len(questions("train")) + len(questions("test"))
    assert len(questions("train")) > 2000
    assert len(questions("test")) > 500
    counts = Counter(question.set for question in questions("test"))
    assert set(counts) == {"one-hop", "two-hop"}
    assert min(counts.values()) > 200


@pytest.mark.parametrize(
    ("question_id", "text", "answers", "searches"),
    [
        ("capital-pl", "What is the capital of Poland?", ("Warsaw",), 1),
        ("currency-ks", "What is the currency of South Korea?", ("South Korean won", "KRW"), 1),
        ("currency-ca", None, ("Canadian dollars", "Canadian dollar", "CAD"), 1),
        ("capital-br", None, ("Brasília", "Brasilia"), 1),
        ("aircraft-nz", None, ("ZK",), 1),
        (
            "domain-capital-hr",
            "What is the capital of the country whose internet country code is .hr?",
            ("Zagreb",),
            2,
        ),
        ("anthem-po", None, ("A Portugesa", "The Song of the Portuguese"), 1),
    ],
)
def test_questions_one_by_one(question_id, text, answers, searches):
    question = ALL[f"searchqa_{question_id}"]
    assert question.text == text or text is None
    assert question.answers == answers
    assert len(question.searches) == searches


def test_train_and_test_share_no_country():
    codes = [
        {question.id.rpartition("-")[2] for question in questions(split)}
        for split in ("train", "test")
    ]
    assert not codes[0] & codes[1]
    assert 0.15 < len(codes[1]) / (len(codes[0]) + len(codes[1])) < 0.25


def test_every_search_shows_what_is_needed():
    """The country's passage, and in it the answer, among what the defaults show."""
    index = factbook.index()
    names = {country.code: country.name for country in countries()}
    for question in ALL.values():
        name = names[question.id.rpartition("-")[2]]
        for search in question.searches:
            shown = [p for p in index.look_up(search, 3) if p.title.startswith(f"{name}: ")]
            assert shown, question
        assert any(question.answers[0] in passage.text[:1000] for passage in shown), question


def test_questions_do_not_give_themselves_away():
    for question in ALL.values():
        assert exact_match(question.answers[0], question.answers)
        name = next(c.name for c in countries() if c.code == question.id.rpartition("-")[2])
        if question.set == "two-hop":
            assert name not in question.text, question
            assert question.searches[0].split()[-1] in question.text, question


def test_clues_mean_one_country():
    """No two questions are the same, or one would have the other's answer."""
    texts = Counter(question.text for question in ALL.values())
    assert max(texts.values()) == 1


def test_tasks_are_there_in_time():
    for cached in (countries, passages, factbook.index, questions):
        cached.cache_clear()
    start = time.perf_counter()
    questions("train")
    assert time.perf_counter() - start < 4  # half a second, where nothing else runs


@pytest.mark.parametrize(
    ("relation", "text", "answers"),
    [
        ("capital", "Port-au-Prince", ("Port-au-Prince",)),
        ("capital", "N'Djamena", ("N'Djamena",)),
        ("capital", "Vientiane (Viangchan)", ()),
        ("capital", "Pretoria (administrative capital); Cape Town", ()),
        ("capital", "none", ()),
        ("capital", "", ()),
        ("currency", "euros (EUR) per US dollar -", ("euros", "euro", "EUR")),
        ("currency", "yen (JPY) per US dollar -", ("yen", "JPY")),
        ("currency", "no currency", ()),
        ("peak", "Mont Blanc 4,810", ("Mont Blanc",)),
        ("peak", "Aoraki-Mount Cook 3,724 m", ("Aoraki-Mount Cook",)),
        ("peak", "Halti (alternatively Haltia) 1,328 m", ()),
        ("peak", "unnamed location 14 m", ()),
        ("peak", "3.6 km W. of Al-Salmi Border Post 300 m", ()),
        ("anthem", '"Motherland"', ("Motherland",)),
        ("anthem", '"Belau rekid" (Our Palau)', ("Belau rekid", "Our Palau")),
        ("anthem", '"One" (two) and "three"', ()),
        ("adjective", "Saint Vincentian or Vincentian", ("Saint Vincentian", "Vincentian")),
        ("adjective", "Motswana (singular), Batswana (plural)", ()),
        ("domain", ".pl", (".pl",)),
        ("domain", ".gg; note - and others", ()),
        ("aircraft", "VP-L", ("VP-L",)),
        ("aircraft", "F (France)", ()),
        ("partner", "USA 29%, China 10% (2023)", ("USA", "United States")),
        ("partner", "Germany 11%, Italy 9% (2023)", ("Germany",)),
        ("partner", "note: none", ()),
    ],
)
def test_what_is_read_of_a_field(relation, text, answers):
    assert RELATIONS[relation].read(text) == answers


@pytest.mark.parametrize("name", ["Congo (Brazzaville)", "Gaza, Gaza Strip", "none", ""])
def test_of_names_that_are_qualified_nothing_is_asked(name):
    assert not relations.is_name(name)
