"""The processes that share one run: each takes every step, on its share of the work.

All ranks hold the same configuration, policy and episodes, and so come to the same decisions. What
only one of them may do, the first does: whatever touches the run directory. What they tell each
other, a backend carries (`Backend.connect`).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import attrs

from agentgym_core.files import new_folder

T = TypeVar("T")

_BEAT_SECONDS = 1.0


class Ranks(Protocol):
    """This process among those that share the run."""

    rank: int
    """Its number, from 0."""
    size: int
    """How many there are."""

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in order, on every rank. All must call; values must pickle.

        Raises:
            RankError: another rank is gone, or did not come in time.
        """
        ...

    def close(self) -> None:
        """Part from the others."""
        ...


@attrs.define
class Alone(Ranks):
    """One process, which has nobody to wait for."""

    rank: int = 0
    size: int = 1

    def gather(self, value: T) -> list[T]:
        """The value."""
        return [value]

    def close(self) -> None:
        """There is nobody to part from."""


ALONE = Alone()


def on_first(ranks: Ranks, action: Callable[[], T]) -> T:
    """Do it on the first rank alone; every rank is given what it returned."""
    return ranks.gather(action() if ranks.rank == 0 else None)[0]  # pyright: ignore[reportReturnType]


async def gathered(ranks: Ranks, value: T, beat: Callable[[], None]) -> list[T]:
    """`ranks.gather`, while signals come through.

    Waiting for another rank is progress: that rank has a watchdog of its own.
    """
    if ranks.size == 1:
        return [value]
    waiting = asyncio.ensure_future(asyncio.to_thread(ranks.gather, value))
    while not waiting.done():
        await asyncio.wait({waiting}, timeout=_BEAT_SECONDS)
        beat()
    return waiting.result()


def write_together(
    ranks: Ranks,
    path: Path,
    fill: Callable[[Path], None],
    finish: Callable[[Path], None] = lambda _: None,
) -> None:
    """A folder that every rank fills, then the first finishes; it takes its place when whole.

    Raises:
        CheckpointError: `path` exists, or the disk says no; nothing is left behind.
        RankError: another rank failed.
    """
    if ranks.rank == 0:
        with new_folder(path) as aside:
            ranks.gather(aside)
            fill(aside)
            ranks.gather(path)
            finish(aside)
    else:
        fill(ranks.gather(path)[0])
        ranks.gather(path)
    ranks.gather(path)  # nobody goes on before it has its name
