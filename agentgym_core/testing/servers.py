"""Real servers for tests: in a thread of this process, or as the command starts them."""

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import Any

from agentgym_core.protocols import Environment
from agentgym_core.serving.process import Blueprint


def lasting_port() -> int:
    """A free port that stays free while its server is away.

    Below those that the system gives to outgoing connections, one of which could take it.
    """
    for port in random.SystemRandom().sample(range(15_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@contextlib.contextmanager
def served(
    environment: Environment, name: str = "countdown", port: int = 0, **settings: Any
) -> Generator[str]:
    """The address of a server in a thread, also for environments that nobody registers.

    Args:
        environment: What is served.
        name: As which it is registered, or would be.
        port: 0 is any that is free.
        settings: Fields of `serving.server.ServerSettings`.
    """
    from agentgym_core.serving.server import ServerSettings, make_app

    app = make_app(environment, name, ServerSettings(**settings))
    with served_app(app, port) as address:
        yield address


@contextlib.contextmanager
def served_app(app: Any, port: int = 0) -> Generator[str]:
    """The address of any ASGI app, in a thread."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while thread.is_alive() and not server.started:
                thread.join(0.01)
            assert server.started, "the server did not start"
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


@contextlib.contextmanager
def serving(*arguments: str, **environ: str) -> Generator[tuple[str, "subprocess.Popen[str]"]]:
    """`agentgym serve` with these arguments: its address, and the process.

    Example: serving("textcraft", "num_goals=20", "--port", "0")
    """
    command = [sys.executable, "-m", "agentgym_core.cli", "serve", *arguments]
    with _started(command, **environ) as started:
        yield started


_SCRIPT = """
import json, sys
from agentgym_core.serving.server import ServerSettings, make_app
from agentgym_core.serving.worker import build
from agentgym_core.cli.serve import listen, run
blueprint, name, settings = json.loads(sys.argv[1])
environment = build(blueprint)
app = make_app(environment, name, ServerSettings(**settings))
run(app, listen("127.0.0.1", 0), environment, name)
"""


@contextlib.contextmanager
def serving_script(blueprint: Blueprint, name: str, **settings: Any) -> Generator[str]:
    """A server in a process of its own, also for environments that nobody registers."""
    given = json.dumps([blueprint.to_json(), name, settings])
    with _started([sys.executable, "-c", _SCRIPT, given]) as (address, _):
        yield address


@contextlib.contextmanager
def _started(command: list[str], **environ: str) -> Generator[tuple[str, "subprocess.Popen[str]"]]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environ},
    )
    lines: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            found = re.search(r"http://\S+", line)
            if found and "see /docs" in line:
                yield found.group(), process
                break
        else:
            raise AssertionError(f"the server ended: {''.join(lines)}")
    finally:
        process.terminate()
        process.communicate(timeout=20)
