"""Writing so that a kill at any moment leaves the old content or the new, never half of one."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace a file's content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


def write_json(path: Path, value: Any) -> None:
    """Replace a file's content with readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file's content with one JSON value a line."""
    write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def read_json_lines(path: Path) -> list[Any]:
    """Every whole line; a last one that a kill cut short is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


@contextlib.contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder to fill, which takes its place under `path` when the block ends without an error.

    Raises:
        OSError: `path` exists, or the disk says no; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield aside
        for file in (f for f in aside.rglob("*") if f.is_file()):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        aside.chmod(0o755)  # mkdtemp's are private
        os.rename(aside, path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
