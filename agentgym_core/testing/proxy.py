"""A bad line between a client and a server: some answers never arrive."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Generator
from urllib.parse import urlsplit


@contextlib.contextmanager
def bad_line(address: str, lost: float, seed: int = 0) -> Generator[str]:
    """Another address for the server, whose connections break before a share of its answers.

    The server has done what was asked by then: the client cannot know.
    """
    draw = random.Random(seed)
    host, port = urlsplit(address).hostname, urlsplit(address).port
    loop = asyncio.new_event_loop()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await join(reader, writer, await asyncio.open_connection(host, port))
        finally:
            writer.close()

    async def join(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        up = asyncio.create_task(_carry(reader, far[1], lambda: False))
        try:
            await _carry(far[0], writer, lambda: draw.random() < lost)
        finally:
            up.cancel()
            far[1].close()

    server = loop.run_until_complete(asyncio.start_server(connect, "127.0.0.1", 0))
    port_here = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port_here}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(_all(left))
        loop.close()


async def _all(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.05)  # until what was closed is closed


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, breaks: Callable[[], bool]
) -> None:
    """Until one end is gone, or an answer is to be lost."""
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            if data.startswith(b"HTTP/") and breaks():
                return
            writer.write(data)
            await writer.drain()
