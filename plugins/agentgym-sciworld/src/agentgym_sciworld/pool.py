"""Simulators of this process that wait for their next session.

Starting one takes about a second and a tenth of a gigabyte, a reset only 0.1 s.
"""

import atexit
import os
from collections.abc import Sequence

from agentgym_sciworld.simulator import Simulator

_Key = tuple[int, str | None, tuple[str, ...]]

_idle: dict[_Key, list[Simulator]] = {}
_all: list[tuple[int, Simulator]] = []


def _key(java: str | None, options: Sequence[str]) -> _Key:
    # A fork must not speak through the connections of its parent.
    return os.getpid(), java, tuple(options)


def borrow(java: str | None, options: Sequence[str]) -> Simulator:
    """A simulator that nobody uses, started if there is none. See `Simulator` for the errors."""
    waiting = _idle.setdefault(_key(java, options), [])
    while waiting:
        simulator = waiting.pop()
        if simulator.is_alive:
            return simulator
        discard(simulator)
    simulator = Simulator(java, options)
    _all.append((os.getpid(), simulator))
    return simulator


def give_back(simulator: Simulator, java: str | None, options: Sequence[str]) -> None:
    """Let another session have it, unless it is broken."""
    if simulator.is_alive:
        _idle.setdefault(_key(java, options), []).append(simulator)
    else:
        discard(simulator)


def discard(simulator: Simulator) -> None:
    """Stop a simulator for good."""
    simulator.stop()
    _all[:] = [entry for entry in _all if entry[1] is not simulator]


@atexit.register
def stop_all() -> None:
    """Stop every simulator of this process, borrowed or not."""
    for pid, simulator in tuple(_all):
        if pid == os.getpid():
            discard(simulator)
    _idle.clear()
