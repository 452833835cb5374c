"""Signals that ask a run to stop."""

import asyncio
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_REPEAT_SECONDS = 2.0
"""A launcher hands a terminal's Ctrl-C on to processes that have had it from the terminal."""


@contextmanager
def stopping(stop_playing: Callable[[int], None], *, several: bool = False) -> Generator[None]:
    """The first SIGINT, SIGTERM or SIGHUP ends what is played; a step that is learning finishes.

    SIGHUP comes of a terminal that closes; where it is ignored, as under nohup, it stays so. A
    second signal kills the process at once, also while the event loop is busy. Among `several`
    ranks it does so only after two seconds.

    Args:
        stop_playing: is called with the signal's number.
        several: whether a launcher started this process, with others.
    """
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    received: list[float] = []

    def stop(number: int, _: Any) -> None:
        received.append(time.monotonic())
        if several and received[-1] - received[0] > _REPEAT_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if not several:
            for each in numbers:
                signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop_playing, number)

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
