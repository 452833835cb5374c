"""The seven question-answering sets, read from files, with AgentGym's ids.

AgentGym counts the test questions of all sets one after another, from 0, and then the training
questions. The files are those of FlashRAG's datasets, a folder for each set, or Search-R1's, a file
for each split with all sets in that order.
"""

import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from agentgym_searchqa.questions import Question

log = logging.getLogger(__name__)


@attrs.frozen
class Part:
    """The questions of one set in one split."""

    set: str
    split: str
    """Of the environment: `train` or `test`."""
    file: str
    """In FlashRAG's layout."""
    size: int
    first: int
    """The index of its first question."""


def _parts() -> Iterator[Part]:
    sizes = (
        ("nq", "test", "test", 3610),
        ("triviaqa", "test", "test", 11313),
        ("popqa", "test", "test", 14267),
        ("hotpotqa", "test", "dev", 7405),
        ("2wikimultihopqa", "test", "dev", 12576),
        ("musique", "test", "dev", 2417),
        ("bamboogle", "test", "test", 125),
        ("nq", "train", "train", 79168),
        ("hotpotqa", "train", "train", 90447),
    )
    first = 0
    for name, split, file, size in sizes:
        yield Part(name, split, f"{name}/{file}.jsonl", size, first)
        first += size


PARTS = tuple(_parts())
SETS = tuple(dict.fromkeys(part.set for part in PARTS))
SAMPLE_SIZES: Mapping[str, int] = {"musique": 100}
"""Of the paper's test set of 400; of each other set there are 50."""
SAMPLE_SIZE = 50


@functools.lru_cache(maxsize=8)
def read_questions(folder: Path, split: str, sets: tuple[str, ...] | None) -> tuple[Question, ...]:
    """The questions of `train` or `test`, in AgentGym's order.

    Args:
        folder: Has `<split>.jsonl`, or `<set>/<file>.jsonl` for each of the sets.
        split: `train` or `test`.
        sets: Which are read; null is all.

    Raises:
        ValueError: a file is missing, has too many rows, or a row is no question.
    """
    whole = folder / f"{split}.jsonl"
    if whole.is_file():
        found = tuple(_whole(whole, split))
        return tuple(q for q in found if sets is None or q.set in sets)
    wanted = [p for p in PARTS if p.split == split and (sets is None or p.set in sets)]
    return tuple(question for part in wanted for question in _part(folder, part))


def _whole(path: Path, split: str) -> Iterator[Question]:
    """Of one file with all sets: a row's place is its index."""
    parts = [part for part in PARTS if part.split == split]
    rows = _rows(path)
    _check_size(path, len(rows), sum(part.size for part in parts))
    index = parts[0].first
    for part in parts:
        for row in rows[index - parts[0].first :][: part.size]:
            yield _question(row, index, str(row.get("data_source", part.set)))
            index += 1


def _part(folder: Path, part: Part) -> Iterable[Question]:
    path = folder / part.file
    if not path.is_file():
        raise ValueError(
            f"`data`: there is no {path}. Put there a file with one "
            '{"question": "…", "golden_answers": ["…"]} a line, as FlashRAG\'s datasets are; or '
            f"all sets in one {folder / part.split}.jsonl, as Search-R1 has them; or leave "
            f"{part.set} out with `sets`"
        )
    rows = _rows(path)
    _check_size(path, len(rows), part.size)
    return [_question(row, part.first + place, part.set) for place, row in enumerate(rows)]


def _check_size(path: Path, num_rows: int, size: int) -> None:
    if num_rows > size:
        raise ValueError(
            f"`data`: {path} has {num_rows} questions, but there are ids for {size}: shorten it"
        )
    if num_rows < size:
        log.warning(
            "%s has %d questions, the set %d: the ids may mean others than in AgentGym's files",
            path,
            num_rows,
            size,
        )


def _rows(path: Path) -> Sequence[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                rows.append(_row(path, number, line))
    if not rows:
        raise ValueError(f"`data`: {path} has no questions")
    return rows


def _row(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
        answers = row["golden_answers"]
        fits = isinstance(row["question"], str) and isinstance(answers, list) and answers
        if fits and all(isinstance(answer, str) for answer in answers):
            return row
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(
        f"`data`: line {number} of {path} is no question: expected "
        '{"question": "…", "golden_answers": ["…", …]}, got ' + repr(line[:80])
    )


def _question(row: Mapping[str, Any], index: int, set_name: str) -> Question:
    text = row["question"].strip()
    return Question(
        id=f"searchqa_{index}",
        text=text if text.endswith("?") else f"{text}?",
        answers=tuple(row["golden_answers"]),
        set=set_name,
    )
