"""Stops a run in which nothing goes on, and says what it was waiting for."""

import faulthandler
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_CODE = 2
GRACE_SECONDS = 30.0
"""What a run that is told to stop may take to do so."""


class Progress:
    """When something last went on, and what is being waited for. Costs a microsecond a call."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self._num_waits = 0
        self._waits: dict[int, tuple[str, str]] = {}

    def beat(self) -> None:
        """Something went on."""
        self.last = time.monotonic()

    @contextmanager
    def waiting(self, what: str, task: str = "") -> Generator[None]:
        """The block waits for that; when it ends, something went on."""
        self._num_waits += 1
        key = self._num_waits
        self._waits[key] = (what, task)
        try:
            yield
        finally:
            del self._waits[key]
            self.beat()

    def beating(self, call: Callable[..., T]) -> Callable[..., T]:
        """The same function; each call of it is progress."""

        def beat(*args: Any, **kwargs: Any) -> T:
            self.beat()
            return call(*args, **kwargs)

        return beat

    def report(self) -> str:
        """Example: `2 episodes wait for TextCraft.step (tasks textcraft_1, textcraft_9)`."""
        tasks: dict[str, list[str]] = defaultdict(list)
        alone: list[str] = []
        for what, task in self._waits.copy().values():
            if task:
                tasks[what].append(task)
            else:
                alone.append(what)
        words = [
            f"{len(ids)} episode{'s wait' if ids[1:] else ' waits'} for {what} "
            f"(task{'s' * (len(ids) > 1)} {', '.join(sorted(set(ids))[:5])}"
            f"{', …' if len(set(ids)) > 5 else ''})"
            for what, ids in tasks.items()
        ]
        return ", ".join(words or alone[-1:]) or "nothing is being waited for"


@contextmanager
def watched(
    progress: Progress,
    seconds: float | None,
    stop: Callable[[str], None],
    grace: float = GRACE_SECONDS,
) -> Generator[None]:
    """Watch the block: if nothing goes on in it for `seconds`, `stop` is called from a thread.

    If the block has not ended `grace` seconds later, its thread is stuck: what each thread does is
    written to stderr, and the process ends.
    """
    if seconds is None:
        yield
        return
    over = threading.Event()
    progress.beat()

    def watch() -> None:
        while (left := progress.last + seconds - time.monotonic()) > 0:
            if over.wait(left):
                return
        words = f"nothing made progress for {seconds:g} s: {progress.report()}"
        stop(words)
        if not over.wait(grace):
            sys.stderr.write(f"error: {words}. It did not stop when told to:\n")
            faulthandler.dump_traceback()
            os._exit(EXIT_CODE)

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
