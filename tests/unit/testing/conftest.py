"""What a suite says of a component."""

from unittest import SkipTest

import attrs


def outcome(suite, component, *checks: str) -> tuple[set[str], set[str]]:
    """The checks that fail, and those that do not apply; of all, if none are named."""
    found = type("Suite", (suite,), {suite.kind: component})()
    failed, skipped = set(), set()
    for name in checks or (name for name in dir(suite) if name.startswith("test_")):
        try:
            getattr(found, name)()
        except SkipTest:
            skipped.add(name)
        except Exception:
            failed.add(name)
    return failed, skipped


def class_name(value) -> str | None:
    """For the ids of parametrized components."""
    return type(value).__name__ if attrs.has(type(value)) else None
