"""What a player can say, and how it is read: whatever is clear is understood, the rest is told why.

Letter case, `_` and `-` for spaces, `the` before a name, marks around an action and talk behind it
do not matter. Digits may stand apart, as word-level tokenizers write them.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

import attrs

from agentgym_babyai.phrases import COLORS, KINDS, Phrases

Verb = Literal[
    "go to",
    "pick up",
    "go through",
    "toggle and go through",
    "drop",
    "toggle",
    "turn left",
    "turn right",
    "move forward",
    "check available actions",
]

_VERBS: dict[tuple[str, ...], Verb] = {
    ("go", "to"): "go to",
    ("goto",): "go to",
    ("pick", "up"): "pick up",
    ("pickup",): "pick up",
    ("go", "through"): "go through",
    ("toggle", "and", "go", "through"): "toggle and go through",
    ("drop",): "drop",
    ("toggle",): "toggle",
    ("turn", "left"): "turn left",
    ("turn", "right"): "turn right",
    ("move", "forward"): "move forward",
    ("check", "available", "actions"): "check available actions",
}
_NAMING: frozenset[Verb] = frozenset(("go to", "pick up", "go through", "toggle and go through"))
"""Verbs with a thing behind them."""
_MAY_NAME: frozenset[Verb] = frozenset(("drop", "toggle"))
"""Verbs that do without, but must not be meant for another thing."""
_LONGEST_VERB = max(map(len, _VERBS))
_LONGEST_NUMBER = 4
_WORD = re.compile(r"[a-z]+|[0-9]+|\n|[^\sa-z0-9]")
_BETWEEN = frozenset(("\n", ".", ",", ";", "&", "+", "|", "/", "and", "then"))
"""What may stand between two actions."""


@attrs.frozen(kw_only=True)
class Command:
    """One action, as the player said it."""

    verb: Verb
    name: str = ""
    """The thing's, such as "red ball"; empty where none was named."""
    number: int | None = None
    """None if the player did not say it."""

    def __str__(self) -> str:
        if self.verb not in _NAMING:
            return self.verb
        return f"{self.verb} {self.name}" + ("" if self.number is None else f" {self.number}")


class Refusal(Exception):
    """An action cannot be carried out; the message is the world's answer."""


def read_command(text: str, phrases: Phrases) -> Command:
    """Return the one action that the text begins with.

    Raises:
        Refusal: it begins with none, holds more than one, or does not name a thing.
    """
    words = _words(text)
    verb, rest = _verb(words)
    if verb is None:
        raise Refusal(phrases.not_an_action)
    name, number, rest = _name(rest, verb)
    if verb in _NAMING and not name:
        raise Refusal(phrases.no_thing)
    several = not name and rest and rest[0].isdigit()  # "move forward 3"
    if several or _holds_command(rest):
        raise Refusal(phrases.several_actions)
    return Command(verb=verb, name=name, number=number)


def _words(text: str) -> list[str]:
    """The text in lower case, cut into words, numbers, line ends and marks; from its first word."""
    plain = unicodedata.normalize("NFKC", text).lower().encode("ascii", "replace").decode()
    words = _WORD.findall(re.sub(r"[_-]", " ", plain).strip())
    first = next((i for i, word in enumerate(words) if word.isalnum()), len(words))
    return words[first:]


def _verb(words: Sequence[str]) -> tuple[Verb | None, list[str]]:
    for size in range(min(_LONGEST_VERB, len(words)), 0, -1):
        verb = _VERBS.get(tuple(words[:size]))
        if verb is not None:
            return verb, list(words[size:])
    return None, list(words)


def _name(words: list[str], verb: Verb) -> tuple[str, int | None, list[str]]:
    """The thing that is named, its number, and what follows; an empty name if there is none."""
    if verb not in _NAMING | _MAY_NAME:
        return "", None, words
    start = 1 if words[:1] in (["the"], ["a"], ["an"]) else 0
    color, kind = ["grey" if w == "gray" else w for w in (*words[start : start + 2], "", "")][:2]
    if color not in COLORS or kind not in KINDS:
        return "", None, words
    size = start + 2
    while size < len(words) and words[size].isdigit():
        size += 1
    digits = "".join(words[start + 2 : size])[:_LONGEST_NUMBER]  # longer ones are nobody's number
    return f"{color} {kind}", int(digits) if digits else None, words[size:]


def _holds_command(words: Sequence[str]) -> bool:
    """Whether what follows an action is another, rather than talk such as "to drop it later"."""
    return any(
        word in _BETWEEN and _verb(words[index + 1 :])[0] is not None
        for index, word in enumerate(words)
    )
