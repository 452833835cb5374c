"""Files of rows to learn from: found by name, folder or pattern; each row with its place."""

import glob
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SUFFIXES = (".json", ".jsonl")


def find_files(data: str | Sequence[str]) -> list[Path]:
    """The files that a configuration's `data` names, each once.

    Args:
        data: a file, a folder, a pattern such as `runs/*/rollouts/grpo/step-*.jsonl`, or several of
            these. A folder gives the `.json` and `.jsonl` files in it and below, sorted, but for
            those of evaluations (`evaluation-…`), whose tasks are held out.

    Raises:
        ValueError: a name leads to no file.
    """
    names = [data] if isinstance(data, str) else list(data)
    if not names:
        raise ValueError("data: names no file")
    return list(dict.fromkeys(path for name in names for path in _found(name)))


def _found(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        below = sorted(found for found in path.rglob("*") if found.suffix in _SUFFIXES)
        files = [found for found in below if not found.name.startswith((".", "evaluation-"))]
        if not files:
            raise ValueError(f"data: the folder {name} holds no {' and no '.join(_SUFFIXES)} file")
        return files
    if path.exists():
        return [path]
    files = [Path(found) for found in sorted(glob.glob(name, recursive=True))]
    files = [found for found in files if found.is_file()]
    if not files:
        raise ValueError(f"data: there is no file {name}")
    return files


def read_rows(path: Path) -> list[tuple[str, Any]]:
    """The JSON values of a file, each with its place, such as `demos.jsonl:12`.

    The file is a JSON list, or values one after another, as in JSONL.

    Raises:
        ValueError: it cannot be read, has no values, or something else than JSON; names the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    rows = _Scanner(path, text).rows()
    if not rows:
        raise ValueError(f"{path} is empty: there is nothing to learn from")
    return rows


class _Scanner:
    """Goes through a text value by value, and knows the line."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._at = 0
        self._line = 1
        self._decoder = json.JSONDecoder()

    def rows(self) -> list[tuple[str, Any]]:
        rows: list[tuple[str, Any]] = []
        self._skip()
        listed = self._take("[")
        while self._at < len(self._text) and not (listed and self._take("]")):
            place = f"{self._path}:{self._line}"
            rows.append((place, self._value(place)))
            self._skip()
            if listed and not self._take(",") and not self._text.startswith("]", self._at):
                raise ValueError(f"{self._path}:{self._line}: no JSON: the list does not go on")
        if self._at < len(self._text):
            raise ValueError(f"{self._path}:{self._line}: no JSON: something follows the list")
        return rows

    def _value(self, place: str) -> Any:
        try:
            value, end = self._decoder.raw_decode(self._text, self._at)
        except (ValueError, RecursionError) as error:  # the latter where it is nested too deep
            raise ValueError(f"{place}: no JSON: {error}") from error
        self._go_to(end)
        return value

    def _take(self, sign: str) -> bool:
        """Whether that sign stands here; it, and the white space after it, is passed."""
        if not self._text.startswith(sign, self._at):
            return False
        self._go_to(self._at + 1)
        self._skip()
        return True

    def _skip(self) -> None:
        end = self._at
        while end < len(self._text) and self._text[end] in " \t\r\n":
            end += 1
        self._go_to(end)

    def _go_to(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end
