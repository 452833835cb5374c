"""Words that error messages share."""

import difflib
import importlib.metadata
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


def packages_of(cls: type) -> dict[str, str]:
    """The installed packages that may hold a class, with their versions; usually one, or none."""
    root = cls.__module__.partition(".")[0]
    # An editable install lists none of its modules, but a plugin names one in its entry point.
    packages = {
        entry_point.dist.name: entry_point.dist.version
        for entry_point in importlib.metadata.entry_points(group="agentgym")
        if entry_point.dist is not None and entry_point.module.partition(".")[0] == root
    }
    if not packages:
        names = importlib.metadata.packages_distributions().get(root, ())
        packages = {name: importlib.metadata.version(name) for name in names}
    return packages


def origin(component: object) -> str:
    """A component's class and whose it is: `GuessNumber (package agentgym-guess 0.1.0)`.

    For errors only: it looks through the installed packages. A class that no package holds, such
    as one of a notebook, is named with its module.
    """
    cls = component if isinstance(component, type) else type(component)
    packages = packages_of(cls)
    if not packages:
        return f"{cls.__name__} (module {cls.__module__})"
    listed = " or ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    return f"{cls.__name__} (package {listed})"
