"""What a player can say, and how it is read: whatever is clear is understood, the rest is told why.

Letter case, `_` and `-` for spaces, `minecraft:` before a name, marks around the command and
anything after it do not matter. Digits may stand apart, as word-level tokenizers write them.
"""

import difflib
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import NoReturn

import attrs

from agentgym_textcraft.phrases import MAX_COUNT, Phrases
from agentgym_textcraft.recipes import RecipeBook

Items = tuple[tuple[int, str], ...]
"""Counts and names, such as ((6, "oak planks"), (1, "stick"))."""

_WORD = re.compile(r"[a-z]+|[0-9]+|\n|[^\sa-z0-9]")
_JOINT = re.compile(r"(?<=[a-z])\s*-\s*(?=[a-z])|_")
_PREFIX = re.compile(r"minecraft\s*:\s*")
_BETWEEN_ITEMS = frozenset({",", ";", "&", "+", "and"})
_BETWEEN_COMMANDS = _BETWEEN_ITEMS | {"\n", ".", ":", "|", "then"}
_LONGEST_QUOTE = 6
"""Words of an unknown name that an answer repeats."""


def listed(items: Items) -> str:
    """Counts and names in a row, such as "6 oak planks, 1 stick"."""
    return ", ".join(f"{count} {name}" for count, name in items)


@attrs.frozen
class Get:
    """Take some of a raw item."""

    count: int
    item: str

    def __str__(self) -> str:
        return f"get {self.count} {self.item}"


@attrs.frozen
class Craft:
    """Follow a recipe once."""

    count: int | None
    """None if the player did not say how many there will be."""
    item: str
    inputs: Items

    def __str__(self) -> str:
        output = self.item if self.count is None else f"{self.count} {self.item}"
        return f"craft {output} using {listed(self.inputs)}"


@attrs.frozen
class Inventory:
    """Ask what one has."""

    def __str__(self) -> str:
        return "inventory"


Command = Get | Craft | Inventory


class Refusal(Exception):
    """A command cannot be carried out; the message is the world's answer."""


@attrs.frozen
class CommandReader:
    """Reads commands in a world where the player sees certain names."""

    book: RecipeBook
    phrases: Phrases
    nearby: tuple[str, ...]
    """The names that the player was shown: what a misspelt one may have meant."""

    def read(self, text: str) -> Command:
        """Return the one command that the text begins with.

        Raises:
            Refusal: it begins with none, holds more than one, or names something unknown.
        """
        words = _words(text)
        verb, rest = (words[0], words[1:]) if words else ("", [])
        if verb == "get":
            command, rest = self._get(rest)
        elif verb == "craft":
            command, rest = self._craft(rest)
        elif verb == "inventory":
            command = Inventory()
        else:
            raise Refusal(self.phrases.not_a_command)
        if _holds_command(rest):
            raise Refusal(self.phrases.several_commands)
        return command

    def _get(self, words: list[str]) -> tuple[Get, list[str]]:
        count, item, rest = self._item(words)
        if _more_items(rest):
            raise Refusal(self.phrases.several_commands)
        return Get(count, item), rest

    def _craft(self, words: list[str]) -> tuple[Craft, list[str]]:
        if "using" not in words:
            raise Refusal(self.phrases.no_inputs)
        split = words.index("using")
        count, item = self._output(words[:split])
        rest = more = words[split + 1 :]
        if not any(word.isalnum() for word in more):
            raise Refusal(self.phrases.no_inputs)
        inputs: dict[str, int] = {}
        while more:
            number, name, rest = self._item(more)
            inputs[name] = inputs.get(name, 0) + number
            more = _more_items(rest)
        return Craft(count, item, tuple((n, name) for name, n in inputs.items())), rest

    def _output(self, words: list[str]) -> tuple[int | None, str]:
        count = None
        if words and not words[0].isalpha():
            count, words = self._count(words)
        item, rest = self._name(words)
        if _holds_command(rest):
            raise Refusal(self.phrases.several_commands)
        if rest and rest[0].isalpha():
            self._refuse_name(words)
        return count, item

    def _item(self, words: list[str]) -> tuple[int, str, list[str]]:
        count, rest = self._count(words)
        return count, *self._name(rest)

    def _count(self, words: list[str]) -> tuple[int, list[str]]:
        size = 0
        while size < len(words) and words[size].isdigit():
            size += 1
        digits, rest = "".join(words[:size]).lstrip("0"), words[size:]
        if not size and words[:1] != ["-"]:
            raise Refusal(self.phrases.no_count)
        if not digits or len(digits) > len(str(MAX_COUNT)) or int(digits) > MAX_COUNT:
            raise Refusal(self.phrases.bad_count)
        if len(rest) > 1 and rest[0] in ".," and rest[1].isdigit():  # 1.5, 1,000
            raise Refusal(self.phrases.bad_count)
        return int(digits), rest

    def _name(self, words: list[str]) -> tuple[str, list[str]]:
        """The longest name of an item that the words begin with."""
        if not words or not words[0].isalpha():
            raise Refusal(self.phrases.no_item)
        for size in range(min(self.book.longest_name, len(words)), 0, -1):
            name = " ".join(words[:size])
            if name in self.book.items:
                return name, words[size:]
            if name in self.book.kinds:
                raise Refusal(self._which(name))
        self._refuse_name(words)

    def _refuse_name(self, words: Sequence[str]) -> NoReturn:
        quoted = itertools.takewhile(str.isalpha, words[:_LONGEST_QUOTE])
        name = " ".join(quoted)
        answer = self.phrases.unknown_item.format(item=name)
        for meant in difflib.get_close_matches(name, self.nearby, n=1):
            answer += self.phrases.did_you_mean.format(item=meant)
        raise Refusal(answer)

    def _which(self, kind: str) -> str:
        answer = self.phrases.kind.format(item=kind)
        shown = [item for item in self.book.kinds[kind] if item in self.nearby]
        return answer + (self.phrases.example.format(item=shown[0]) if shown else "")


def _words(text: str) -> list[str]:
    """The text in lower case, cut into words, numbers, line ends and marks; from its first word."""
    plain = unicodedata.normalize("NFKC", text).lower().encode("ascii", "replace").decode()
    words = _WORD.findall(_JOINT.sub(" ", _PREFIX.sub("", plain)))
    return list(itertools.dropwhile(lambda word: not word.isalnum(), words))


def _more_items(words: list[str]) -> list[str]:
    """What begins with another counted item, if one follows here."""
    rest = list(itertools.dropwhile(_BETWEEN_ITEMS.__contains__, words))
    return rest if rest and rest[0].isdigit() else []


def _holds_command(words: Sequence[str]) -> bool:
    """Whether what follows a command is another, rather than talk such as "to craft 1 door"."""
    before = "\n"
    for index, word in enumerate(words):
        after = words[index + 1] if index + 1 < len(words) else "\n"
        if before in _BETWEEN_COMMANDS and (
            (word in ("get", "craft") and after.isdigit())
            or (word == "inventory" and after in _BETWEEN_COMMANDS)
        ):
            return True
        before = word
    return False
