"""What a search gives, and where it may be looked up."""

from collections.abc import Sequence
from typing import Protocol

import attrs


class RetrievalError(RuntimeError):
    """A search did not come to a result. The episode failed; it is no answer to the policy."""


@attrs.frozen(kw_only=True)
class Passage:
    """A piece of text with a title."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """As corpora in JSONL have it: the title in quotes, then the text below."""
        return f'"{self.title}"\n{self.text}' if self.title else self.text


def to_passage(passage_id: object, contents: str) -> Passage:
    """Split contents into title and text; contents without a title's line are all text."""
    head, _, text = contents.partition("\n")
    head = head.strip()
    if len(head) > 2 and head[0] == head[-1] == '"':
        return Passage(id=str(passage_id), title=head[1:-1].strip(), text=text.strip())
    return Passage(id=str(passage_id), title="", text=contents.strip())


class Retriever(Protocol):
    """Looks passages up."""

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query its best passages, best first, at most k; none may match.

        Any text is a query.

        Raises:
            RetrievalError: a result could not be had.
        """
        ...

    async def close(self) -> None:
        """Free what it holds. May be called twice."""
