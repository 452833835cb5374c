"""What is asked of countries: how, and what is right.

Only what the Factbook says in a simple form is asked. Where it qualifies, doubts or lists, the
country is left out of that relation.
"""

import re
from collections.abc import Callable, Mapping

import attrs

from agentgym_searchqa.factbook import Country

Answers = tuple[str, ...]

_CURRENCY = re.compile(r"([A-Za-z][\w' -]+?) \(([A-Z]{3})\)")
_PEAK = re.compile(r"([^\d(),;]+) [\d,]+(?: m)?")
_ANTHEM = re.compile(r'"([^"]+)"(?: \(([^()"]+)\))?')
_PARTNER = re.compile(r"([A-Za-z. ]+?) \d+%")
_NAME = re.compile(r"[^\W\d_][\w.'’ -]*")
_SHORT_NAMES = {
    "USA": "United States",
    "US": "United States",
    "UK": "United Kingdom",
    "UAE": "United Arab Emirates",
}


def is_name(text: str) -> bool:
    """Whether a text is a plain name, without qualification."""
    return _NAME.fullmatch(text) is not None and text != "none"


@attrs.frozen(kw_only=True)
class Relation:
    """Something that a country has one of."""

    name: str
    question: str
    """With a place for the country."""
    of: str | None
    """The country described by what it has, with a place for that; null if it does not tell."""
    field: tuple[str, ...]
    """Section, field and part of a country's page."""
    topic: str
    """Of the passage that says it."""
    keywords: str
    """What to look it up by, beside the country."""
    read: Callable[[str], Answers]
    """Every right answer that the field holds, the plainest first; none if it is not simple."""

    def answers(self, country: Country) -> Answers:
        """The right answers; none if it is not asked of this country."""
        return self.read(country.field(*self.field)) if is_name(country.name) else ()


def _plain_name(text: str) -> Answers:
    return (text,) if is_name(text) else ()


def _currency(text: str) -> Answers:
    match = _CURRENCY.match(text)
    if match is None:
        return ()
    name, code = match.groups()
    singular = (name[:-1],) if name.endswith("s") else ()
    return (name, *singular, code)


def _adjective(text: str) -> Answers:
    answers = tuple(part.strip() for part in re.split(r" or |, ", text))
    return answers if all(map(is_name, answers)) else ()


def _peak(text: str) -> Answers:
    match = _PEAK.fullmatch(text)
    if match is None or re.search(r"\b(unnamed|location|border|of)\b", match[1]):
        return ()
    return (match[1].strip(),)


def _anthem(text: str) -> Answers:
    match = _ANTHEM.fullmatch(text)
    return tuple(title for title in match.groups() if title) if match else ()


def _partner(text: str) -> Answers:
    match = _PARTNER.match(text)
    if match is None:
        return ()
    full = _SHORT_NAMES.get(match[1])
    return (match[1], full) if full else (match[1],)


def _matching(pattern: str) -> Callable[[str], Answers]:
    return lambda text: (text,) if re.fullmatch(pattern, text) else ()


RELATIONS: Mapping[str, Relation] = {
    relation.name: relation
    for relation in (
        Relation(
            name="capital",
            question="What is the capital of {}?",
            of="the country whose capital is {}",
            field=("Government", "Capital", "name"),
            topic="Government",
            keywords="government capital",
            read=_plain_name,
        ),
        Relation(
            name="anthem",
            question="What is the title of the national anthem of {}?",
            of="the country whose national anthem is {}",
            field=("Government", "National anthem(s)", "title"),
            topic="Government",
            keywords="government national anthem",
            read=_anthem,
        ),
        Relation(
            name="currency",
            question="What is the currency of {}?",
            of=None,
            field=("Economy", "Exchange rates", "Currency"),
            topic="Economy",
            keywords="economy currency",
            read=_currency,
        ),
        Relation(
            name="partner",
            question="Where does the largest share of the exports of {} go?",
            of=None,
            field=("Economy", "Exports - partners"),
            topic="Economy",
            keywords="economy exports partners",
            read=_partner,
        ),
        Relation(
            name="peak",
            question="What is the highest point of {}?",
            of="the country whose highest point is {}",
            field=("Geography", "Elevation", "highest point"),
            topic="Geography",
            keywords="geography highest point",
            read=_peak,
        ),
        Relation(
            name="adjective",
            question="What is the adjective for the nationality of {}?",
            of=None,
            field=("People and Society", "Nationality", "adjective"),
            topic="People",
            keywords="people nationality adjective",
            read=_adjective,
        ),
        Relation(
            name="domain",
            question="What is the internet country code of {}?",
            of="the country whose internet country code is {}",
            field=("Communications", "Internet country code"),
            topic="Communications and transport",
            keywords="internet country code",
            read=_matching(r"\.[a-z]{2}"),
        ),
        Relation(
            name="aircraft",
            question="Which prefix do the registrations of civil aircraft of {} have?",
            of="the country whose civil aircraft have the prefix {}",
            field=("Transportation", "Civil aircraft registration country code prefix"),
            topic="Communications and transport",
            keywords="civil aircraft registration prefix",
            read=_matching(r"[A-Z0-9-]{1,5}"),
        ),
    )
}

BRIDGES = (
    ("capital", "currency"),
    ("capital", "peak"),
    ("capital", "partner"),
    ("anthem", "capital"),
    ("anthem", "currency"),
    ("peak", "capital"),
    ("peak", "currency"),
    ("domain", "capital"),
    ("domain", "anthem"),
    ("aircraft", "capital"),
)
"""What leads to the country, and what is asked of it."""
