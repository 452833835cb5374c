"""Search by a retrieval server that speaks Search-R1's protocol."""

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any

import attrs

from agentgym_searchqa.retrieval import Passage, RetrievalError, Retriever, to_passage

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0


@attrs.frozen(kw_only=True)
class Server:
    """A server that answers `POST {queries, topk, return_scores}`, as Search-R1's does."""

    url: str
    """The whole address, such as `http://10.0.0.5:8000/retrieve`."""
    timeout_seconds: float = 30.0
    """Of one try."""
    num_retries: int = 4
    """Further tries after one that met no server, a full or a broken one."""
    max_connections: int = 64
    """Most searches under way at once, from one process."""

    def __attrs_post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(
                f"`url` is {self.url!r}: give the whole address, such as "
                "http://127.0.0.1:8000/retrieve"
            )
        if not self.timeout_seconds > 0:
            raise ValueError(f"`timeout_seconds` is {self.timeout_seconds}: give more than 0")
        if self.num_retries < 0:
            raise ValueError(f"`num_retries` is {self.num_retries}: give 0 or more")
        if self.max_connections < 1:
            raise ValueError(f"`max_connections` is {self.max_connections}: give 1 or more")


@attrs.define(eq=False)
class _Pool:
    """The connections of one event loop, while any session of it is open."""

    client: Any
    num_users: int = 0


_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Server, _Pool]] = (
    weakref.WeakKeyDictionary()
)


class ServerClient(Retriever):
    """One session's way to the server. Sessions of an event loop share its connections."""

    def __init__(self, settings: Server) -> None:
        self._settings = settings
        self._pool: _Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Ask, and ask again where that may help.

        Raises:
            RetrievalError: no try came to a result, or the answer is of another form.
        """
        asked = {"queries": list(queries), "topk": k, "return_scores": True}
        problem = ""
        for number in range(self._settings.num_retries + 1):
            if number:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (number - 1), _LONGEST_PAUSE))
            answer, problem = await self._ask(asked)
            if not problem:
                return _read(answer, len(queries), k, self._settings.url)
        raise RetrievalError(
            f"{self._settings.url} gave no result in {self._settings.num_retries + 1} tries; the "
            f"last one: {problem}. See that the server of `retriever.server.url` runs and is "
            "reached from this machine"
        )

    async def close(self) -> None:
        """Leave the pool; its last user closes the connections."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        pool.num_users -= 1
        if pool.num_users == 0:
            assert self._loop is not None, "a pool was joined in a loop"
            _pools[self._loop].pop(self._settings, None)
            await pool.client.aclose()

    async def _ask(self, asked: dict[str, Any]) -> tuple[Any, str]:
        """The answer, or what went wrong that may go right later."""
        import httpx

        try:
            response = await self._client().post(self._settings.url, json=asked)
        except httpx.TransportError as error:
            return None, f"{type(error).__name__} {error}".strip()
        if response.status_code == 429 or response.status_code >= 500:
            return None, f"status {response.status_code}"
        if response.status_code != 200:
            raise RetrievalError(
                f"{self._settings.url} refused a search with status {response.status_code}: "
                f"{response.text[:200]!r}. See that `retriever.server.url` is the address that "
                "takes {queries, topk, return_scores}"
            )
        try:
            return response.json(), ""
        except ValueError:
            raise _strange(self._settings.url, response.text) from None

    def _client(self) -> Any:
        import httpx

        if self._pool is None:
            self._loop = asyncio.get_running_loop()
            pools = _pools.setdefault(self._loop, {})
            if self._settings not in pools:
                most = self._settings.max_connections
                pools[self._settings] = _Pool(
                    httpx.AsyncClient(
                        # waiting for one of our own connections is no fault of the server's
                        timeout=httpx.Timeout(self._settings.timeout_seconds, pool=None),
                        limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
                        trust_env=False,
                    )
                )
            self._pool = pools[self._settings]
            self._pool.num_users += 1
        return self._pool.client


def _read(answer: Any, num_queries: int, k: int, url: str) -> list[list[Passage]]:
    """The passages of `{"result": [[{"document": {…}, "score": …}, …], …]}`, or without scores."""
    try:
        results = answer["result"]
        if len(results) != num_queries:
            raise ValueError
        return [[_passage(found) for found in result][:k] for result in results]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _strange(url, str(answer)) from None


def _passage(found: Any) -> Passage:
    document = found.get("document", found)
    if "contents" in document:
        return to_passage(document.get("id", ""), document["contents"])
    return Passage(
        id=str(document.get("id", "")), title=str(document.get("title", "")), text=document["text"]
    )


def _strange(url: str, answer: str) -> RetrievalError:
    return RetrievalError(
        f'{url} answered in another form than {{"result": [[{{"document": {{"id": …, "contents": '
        f'"…"}}, "score": …}}]]}} with one list for each query: {answer[:200]!r}'
    )
