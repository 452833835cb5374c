"""Writing so that a kill at any moment leaves the old content or the new, never half of one.

What is written is on disk, its name included, when a function returns. An error of the disk becomes
a `CheckpointError` that names the path and says what to do.
"""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from agentgym_core.errors import CheckpointError, ConfigError

_MENDS = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some space there, or have the quota raised",
    errno.EACCES: "Make it writable",
    errno.EPERM: "Make it writable",
    errno.EROFS: "Make it writable",
    errno.EEXIST: "Move away what stands there",
    errno.ENOTDIR: "Move away what stands there",
}


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Say of an error of the disk where it happened and how to mend it.

    Raises:
        CheckpointError: in place of any other OSError.
    """
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        mend = _MENDS.get(error.errno or 0, "Mend that")
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}. {mend}, and give the same command "
            "again: nothing that was written before is lost"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace a file's content.

    Raises:
        CheckpointError: the disk says no; the old content stands.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
        _sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a file's content with readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file's content with one JSON value a line."""
    write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def append_json_line(path: Path, row: Any) -> None:
    """Add one JSON value as a line. A kill may leave half of it, which nobody reads.

    Raises:
        CheckpointError: the disk says no.
    """
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_json_lines(path: Path) -> list[Any]:
    """Every whole line; a last one that a kill cut short is left out.

    Raises:
        CheckpointError: a line is not JSON; names it.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    rows: list[Any] = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].split(b"\n")[:-1], start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise CheckpointError(
                f"{path}: line {number} is not JSON: {error}. Remove that line, or bring the file "
                "back from a copy"
            ) from error
    return rows


@contextlib.contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder to fill, which takes its place under `path` when the block ends without an error.

    Raises:
        CheckpointError: `path` exists, or the disk says no; nothing is left behind.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield aside
            for entry in aside.rglob("*"):
                _sync(entry)
            aside.chmod(0o755)  # mkdtemp's are private
            _sync(aside)
            os.rename(aside, path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        _sync(path.parent)


def refuse_existing(path: Path, overwrite: bool, elsewhere: str) -> None:
    """For what a command would write, before the work that it takes to make it.

    Raises:
        ConfigError: `path` exists and is not to be overwritten; names the option `elsewhere`.
    """
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} exists: write elsewhere with {elsewhere}, or give --overwrite")


def remove_leftovers(folder: Path) -> None:
    """Remove what a kill left half-written in this folder: hidden entries, as are made aside."""
    for entry in folder.glob(".*.*"):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Bring a file's content, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
