"""Sessions that block: each in a thread with an event loop of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from agentgym_core.protocols import Environment, Session
from agentgym_core.types import Observation, Task


async def in_thread(environment: Environment) -> "ThreadSession":
    """A session that is opened, and stays, in a thread of its own."""
    thread = _Thread()
    try:
        session = await thread.run(environment.open())
    except BaseException:
        thread.stop()
        raise
    return ThreadSession(session, thread)


class ThreadSession(Session):
    """A session whose calls run in its thread.

    A call that is given up goes on in its thread, which then ends with it: nothing can stop it. The
    session is of no use from then on.
    """

    def __init__(self, session: Session, thread: "_Thread") -> None:
        self._session = session
        self._thread = thread

    async def reset(self, task: Task, seed: int) -> Observation:
        """See `Session`."""
        return await self._thread.run(self._session.reset(task, seed))

    async def step(self, action: str) -> Observation:
        """See `Session`."""
        return await self._thread.run(self._session.step(action))

    async def available_actions(self) -> Sequence[str]:
        """See `Session`."""
        return await self._thread.run(self._session.available_actions())

    async def expert_action(self) -> str | None:
        """See `Session`."""
        return await self._thread.run(self._session.expert_action())

    async def close(self) -> None:
        """Close the session and end the thread; the thread of a call that hangs is left to it."""
        if self._thread.stopped:
            return
        try:
            if not self._thread.busy:
                await self._thread.run(self._session.close())
        finally:
            self._thread.stop()


class _Thread:
    """A daemon thread with an event loop."""

    def __init__(self) -> None:
        self.stopped = False
        self._calls = 0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="agentgym-session", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call that was given up still runs."""
        return self._calls > 0

    async def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self.stopped or self.busy:
            call.close()
            raise RuntimeError(
                "the session is closed" if self.stopped else "its last call did not come back"
            )
        self._calls += 1
        future = asyncio.run_coroutine_threadsafe(self._counted(call), self._loop)
        return await asyncio.wrap_future(future)

    async def _counted(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await call
        finally:
            self._calls -= 1

    def stop(self) -> None:
        """Once the call that it is in comes back."""
        self.stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()
