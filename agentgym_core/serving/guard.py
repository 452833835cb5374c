"""What stands before the calls of a server: a token, a limit to bodies, meters, error answers."""

import hmac
from collections.abc import Callable

import prometheus_client
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

MAX_BODY = 4 * 2**20
"""Bytes of a request."""


class Meters:
    """What `/metrics` tells."""

    def __init__(self, sessions: Callable[[], int], restored: Callable[[], int]) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        gauge = prometheus_client.Gauge
        gauge("agentgym_sessions", "Open sessions", registry=self.registry).set_function(sessions)
        gauge(
            "agentgym_restored", "Episodes restored after a worker died", registry=self.registry
        ).set_function(restored)
        self.seconds = prometheus_client.Histogram(
            "agentgym_call_seconds", "Calls of the environment", ["call"], registry=self.registry
        )
        self.errors = prometheus_client.Counter(
            "agentgym_errors", "Requests that were refused", ["type"], registry=self.registry
        )
        self.collected = prometheus_client.Counter(
            "agentgym_collected", "Sessions closed because nobody used them", registry=self.registry
        )


class Guard:
    """Refuses requests without the token, and bodies that are too long."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self.expected is not None and not hmac.compare_digest(
            headers.get(b"authorization", b""), self.expected
        ):
            answer = error_answer(401, "unauthorized", "send `Authorization: Bearer TOKEN`")
            await answer(scope, receive, send)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MAX_BODY or b"transfer-encoding" in headers:
            answer = error_answer(
                413, "too-long", f"send at most {MAX_BODY} bytes, with their Content-Length"
            )
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def error_answer(status: int, kind: str, message: str) -> JSONResponse:
    """`{"error": {"type": …, "message": …}}`."""
    headers = {"Retry-After": "1"} if status == 429 else None
    return JSONResponse({"error": {"type": kind, "message": message}}, status, headers)
