"""Search by BM25 in this process, in an index on disk or in memory."""

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from agentgym_searchqa.retrieval import Passage, RetrievalError, Retriever, to_passage

ANALYSIS = "1"
"""Counts the ways in which texts have been cut into words: an index of another one is not used."""

_MAX_QUERY_CHARS = 2000
_MAX_TERMS = 64
"""Of a query the first of both are looked up: a policy may write thousands of words."""
_MAX_TIES = 512
_WRITER_BYTES = 256_000_000


@attrs.frozen(kw_only=True)
class Bm25:
    """A corpus in JSONL, such as wiki-18, indexed once into a folder that all processes share."""

    corpus: Path = attrs.field(converter=Path)
    """A file with one passage a line: `{"id": …, "contents": "\\"Title\\"\\ntext"}`."""
    index: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """The folder of the index; null puts it beside the corpus, as `<corpus>.bm25`. It holds a
    subfolder for each state of the corpus, told by size and time of change."""

    def check(self) -> None:
        """See that the corpus is there.

        Raises:
            ValueError: it is not.
        """
        if not self.corpus.is_file():
            raise ValueError(
                f"`retriever.bm25.corpus`: there is no file {self.corpus}: give the path of a "
                'corpus with one {"id": …, "contents": "…"} a line, such as wiki-18.jsonl'
            )

    @property
    def folder(self) -> Path:
        """Where indices of this corpus are."""
        return self.index or self.corpus.with_name(f"{self.corpus.name}.bm25")


class Bm25Index(Retriever):
    """An index that is open. Any number of threads may search it."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._schema = index.schema
        self._searcher = index.searcher()
        self._analyzer = _analyzer()

    def __len__(self) -> int:
        return self._searcher.num_docs

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Search in a thread, so that other episodes go on."""
        return await asyncio.to_thread(lambda: [self.look_up(query, k) for query in queries])

    async def close(self) -> None:
        """Other sessions search on: nothing to do."""

    def look_up(self, query: str, k: int) -> list[Passage]:
        """The k best passages; equally good ones in the order of their ids."""
        from tantivy import Occur, Query

        words = dict.fromkeys(self._analyzer.analyze(query[:_MAX_QUERY_CHARS]))
        terms = [
            (Occur.Should, Query.term_query(self._schema, "contents", word, "freq"))
            for word in list(words)[:_MAX_TERMS]
        ]
        if not terms or not len(self):
            return []
        hits = self._hits(Query.boolean_query(terms), k)
        found = [
            (-score, to_passage(document["id"][0], document["contents"][0]))
            for score, document in hits
        ]
        found.sort(key=lambda pair: (pair[0], len(pair[1].id), pair[1].id))
        return [passage for _, passage in found[:k]]

    def _hits(self, query: Any, k: int) -> list[tuple[float, Any]]:
        """At least the k best; more, while those that a cut would part score the same."""
        limit = k + 1
        while True:
            hits = self._searcher.search(query, limit, count=False).hits
            tied = len(hits) == limit and hits[-1][0] == hits[k - 1][0]
            if not tied or limit > _MAX_TIES:
                return [(score, self._searcher.doc(address)) for score, address in hits]
            limit *= 4


def in_memory(passages: Iterable[Passage]) -> Bm25Index:
    """An index of a small corpus."""
    import tantivy

    index = tantivy.Index(_schema())
    _fill(index, passages)
    return Bm25Index(index)


_opening = threading.Lock()


@functools.lru_cache(maxsize=8)
def _opened(folder: Path) -> Bm25Index:
    import tantivy

    return Bm25Index(tantivy.Index.open(str(folder)))


def open_index(settings: Bm25) -> Bm25Index:
    """The index of a corpus, built if it is not there yet; one for all sessions of a process.

    Another process that builds the same index is waited for.

    Raises:
        ValueError: there is no such corpus, or a line of it is no passage.
        RetrievalError: the folder cannot be written or read.
    """
    with _opening:
        settings.check()
        try:
            folder = settings.folder / _key(settings.corpus)
            if not folder.is_dir():
                settings.folder.mkdir(parents=True, exist_ok=True)
                with _locked(settings.folder / "lock"):
                    if not folder.is_dir():
                        _build(settings.corpus, folder)
            return _opened(folder)
        except OSError as error:
            raise RetrievalError(
                f"the index in {settings.folder} cannot be built or read: {error}. See to it that "
                "the folder of `retriever.bm25.index` is writable and has room for twice the corpus"
            ) from error


def read_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a file in JSONL.

    Raises:
        ValueError: a line is no passage; names it.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                passage_id, contents = row["id"], row["contents"]
                if not isinstance(contents, str) or isinstance(passage_id, dict | list):
                    raise TypeError
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"`retriever.bm25.corpus`: line {number} of {path} is no passage: expected "
                    '{"id": …, "contents": "…"}, got ' + repr(line[:80])
                ) from None
            yield to_passage(passage_id, contents)


def _key(corpus: Path) -> str:
    stat = corpus.stat()
    told = f"{ANALYSIS} {stat.st_size} {stat.st_mtime_ns}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Wait until no other process has the lock; the system frees it when a process ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(corpus: Path, folder: Path) -> None:
    """Build aside and rename, so that what stands under the name is whole."""
    import tantivy

    for left in folder.parent.glob(".building-*"):  # of a process that was killed: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
    try:
        index = tantivy.Index(_schema(), path=str(aside))
        _fill(index, read_corpus(corpus))
        aside.chmod(0o755)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _schema() -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("contents", stored=True, tokenizer_name="passages", index_option="freq")
    return builder.build()


def _analyzer() -> Any:
    """Words without accents, in lower case, by their stems; the same for passages and queries."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    analyzer = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(40))
    for each in (Filter.lowercase(), Filter.ascii_fold(), Filter.stemmer("english")):
        analyzer = analyzer.filter(each)
    return analyzer.build()


def _fill(index: Any, passages: Iterable[Passage]) -> None:
    import tantivy

    index.register_tokenizer("passages", _analyzer())
    # one thread: the same corpus gives the same index
    writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
    try:
        for passage in passages:
            writer.add_document(tantivy.Document(id=passage.id, contents=passage.contents))
        writer.commit()
    finally:
        writer.wait_merging_threads()  # after this nothing is written, whatever went wrong
    index.reload()
