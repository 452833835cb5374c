"""`agentgym serve`."""

import logging
import socket
from pathlib import Path
from typing import Any

import click

from agentgym_core.catalog import Catalog
from agentgym_core.document import is_block, parse_overrides, read_document
from agentgym_core.environments import RUN_KEYS, environment_block
from agentgym_core.errors import ConfigError
from agentgym_core.protocols import Environment
from agentgym_core.serving.servers import TOKEN
from agentgym_core.stages import split_stages
from agentgym_core.wording import origin


@click.command()
@click.argument("name")
@click.argument("options", nargs=-1)
@click.option(
    "--recipe",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take fields of the environment from the YAML file of a run; OPTIONS go over them.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at; 0.0.0.0 lets other machines in.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Processes that hold sessions. Default: one for each core, or none if the environment "
    "can do without.",
)
@click.option("--max-sessions", type=click.IntRange(1), help="Sessions that may be open at once.")
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0, min_open=True),
    default=1800.0,
    show_default=True,
    help="A session that nobody has used for so long is closed.",
)
@click.option(
    "--call-seconds",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    help="Longest that one call of the environment may take.",
)
@click.option("--token", envvar=TOKEN, help=f"Demand this bearer token. Also read from {TOKEN}.")
@click.option(
    "--dialect",
    type=click.Choice(["agentgym", "upstream"]),
    default="agentgym",
    show_default=True,
    help="upstream speaks as the servers of AgentGym did, for their clients.",
)
def serve(
    name: str,
    options: tuple[str, ...],
    recipe: Path | None,
    port: int,
    host: str,
    workers: int | None,
    max_sessions: int | None,
    idle_seconds: float,
    call_seconds: float,
    token: str | None,
    dialect: str,
) -> None:
    """Serve an environment over HTTP.

    OPTIONS are fields of the environment: num_distractors=3. The page /docs describes every call.
    """
    try:
        from agentgym_core.serving.server import ServerSettings, make_app
        from agentgym_core.serving.upstream_server import make_upstream_app
    except ImportError as error:
        raise ConfigError(
            f"{error.name} is not installed: pip install 'agentgym-core[serve]'"
        ) from error
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s: %(message)s")
    catalog = Catalog.installed()
    fields = {} if recipe is None else _fields(recipe, name)
    block = environment_block({"use": name, **fields, **parse_overrides(options)}, name, catalog)
    settings = ServerSettings(
        workers=workers,
        max_sessions=max_sessions,
        idle_seconds=idle_seconds,
        call_seconds=call_seconds,
        token=token,
        host=block.host,
    )
    make = make_upstream_app if dialect == "upstream" else make_app
    app = make(block.component, name, settings)
    run(app, listen(host, port), block.component, name)


def _fields(recipe: Path, name: str) -> dict[str, Any]:
    """What a run says of an environment, without the keys that are the run's own.

    Raises:
        ConfigError: it has no such environment.
    """
    _, stages = split_stages(read_document(recipe), {})
    found: list[Any] = []
    for values in (stage.values for stage in stages):
        found += values.get("environments") or [values.get("environment")]
    for block in found:
        if is_block(block) and block.get("use") == name:
            return {key: value for key, value in block.items() if key not in {"use", *RUN_KEYS}}
        if block == name:
            return {}
    raise ConfigError(f"--recipe: {recipe} has no environment {name}")


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address.

    Raises:
        ConfigError: it is taken, or none of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"--port: cannot listen at {host}:{port}: {error.strerror or error}. Choose another, "
            "or 0 for any that is free"
        ) from error


def run(app: Any, listening: socket.socket, environment: Environment, name: str) -> None:
    """Serve until a signal comes.

    Raises:
        ConfigError: the environment did not start.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                address, port = listening.getsockname()[:2]
                address = f"[{address}]" if ":" in address else address
                click.echo(f"{name}, {origin(environment)}: http://{address}:{port} (see /docs)")

    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    server = Server(config)
    server.run(sockets=[listening])
    if not server.started:
        raise ConfigError(f"{name} could not be served: see above")
