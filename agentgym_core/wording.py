"""Words that error messages share."""

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """` Did you mean num_steps?`, or nothing if no choice is near."""
    near = difflib.get_close_matches(word, list(choices), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def shown(value: Any) -> str:
    """A value from YAML, short enough for one line."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_line(error: BaseException) -> str:
    """What an exception says, on one line. Validators of attrs put more than text into it."""
    text = error.args[0] if error.args and isinstance(error.args[0], str) else error
    return " ".join(str(text).split())
