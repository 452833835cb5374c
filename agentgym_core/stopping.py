"""Signals that ask a run to stop."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from agentgym_core.errors import Interrupted


@contextmanager
def stopping(stop_playing: Callable[[], None]) -> Generator[None]:
    """The first SIGINT or SIGTERM ends what is being played; a step that is learning finishes.

    A second one kills the process at once, also while the event loop is busy.
    """
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    received: list[int] = []

    def stop(number: int, _: Any) -> None:
        received.append(number)
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop_playing)

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    except Interrupted as error:
        error.signal = received[0]
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
