"""Questions about the small world, each of which its own passages answer.

One hop asks something of a country; two hops describe the country by what it alone has. A question
is kept if an expert's searches show, among the best `SHOWN` passages cut to `SHOWN_CHARS`
characters, the country that is meant and then the answer.
"""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable

from agentgym_core.seeds import derive_seed
from agentgym_searchqa.factbook import Country, countries, index
from agentgym_searchqa.questions import Question
from agentgym_searchqa.relations import BRIDGES, RELATIONS, Answers, Relation
from agentgym_searchqa.verdict import exact_match

ONE_HOP, TWO_HOP = SETS = ("one-hop", "two-hop")
SHOWN, SHOWN_CHARS = 3, 600
"""As many passages, and as much of each, as show the answer. The defaults show no less."""


@functools.cache
def questions(split: str) -> tuple[Question, ...]:
    """The questions of `train` or `test`, which share no country: a fifth of them is held out."""
    asked = [*_one_hop(), *_two_hops()]
    held_out = {country.code for country in countries() if _is_held_out(country)}
    return tuple(
        question
        for question in asked
        if (question.id.rpartition("-")[2] in held_out) == (split == "test")
    )


def _is_held_out(country: Country) -> bool:
    return derive_seed("searchqa", "test", country.code) % 5 == 0


def _one_hop() -> Iterable[Question]:
    for relation in RELATIONS.values():
        for country in countries():
            answers = _accepted(relation, country)
            search = f"{country.name} {relation.keywords}"
            if answers and _shows(search, country, relation, answers[0]):
                yield Question(
                    id=f"searchqa_{relation.name}-{country.code}",
                    text=relation.question.format(country.name),
                    answers=answers,
                    set=ONE_HOP,
                    searches=(search,),
                )


def _two_hops() -> Iterable[Question]:
    for bridge, relation in ((RELATIONS[one], RELATIONS[two]) for one, two in BRIDGES):
        assert bridge.of is not None, "a bridge tells which country is meant"
        clues = {country: bridge.answers(country) for country in countries()}
        owners = Counter(clue.lower() for found in clues.values() for clue in found)
        for country, found in clues.items():
            answers = _accepted(relation, country)
            if not found or owners[found[0].lower()] > 1 or not answers:
                continue
            searches = f"{bridge.keywords} {found[0]}", f"{country.name} {relation.keywords}"
            gives_away = country.name.lower() in found[0].lower()
            if (
                not gives_away
                and _shows(searches[0], country, bridge, found[0])
                and _shows(searches[1], country, relation, answers[0])
            ):
                yield Question(
                    id=f"searchqa_{bridge.name}-{relation.name}-{country.code}",
                    text=relation.question.format(bridge.of.format(found[0])),
                    answers=answers,
                    set=TWO_HOP,
                    searches=searches,
                )


def _accepted(relation: Relation, country: Country) -> Answers:
    """The right answers, also as they are written without accents."""
    answers = relation.answers(country)
    if not answers or not exact_match(answers[0], answers):  # nothing but an article
        return ()
    plain = [unicodedata.normalize("NFKD", a).encode("ascii", "ignore").decode() for a in answers]
    return tuple(dict.fromkeys((*answers, *plain)))


@functools.cache
def _found(search: str) -> dict[str, str]:
    return {p.id: p.text[:SHOWN_CHARS] for p in index().look_up(search, SHOWN)}


def _shows(search: str, country: Country, relation: Relation, text: str) -> bool:
    """Whether a search finds the passage that says so, and shows it."""
    return text in _found(search).get(country.passage_id(relation.topic), "")
