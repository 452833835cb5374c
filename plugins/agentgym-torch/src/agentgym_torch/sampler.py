"""The started engine: takes requests as they come, keeps the batch full, answers each."""

import asyncio
from collections import deque
from typing import Any

import torch

from agentgym_core.protocols import Sampler, Weights
from agentgym_core.types import Completion, Request
from agentgym_torch.language_model import copy_weights
from agentgym_torch.rows import Path, Row
from agentgym_torch.sampling import sample

CLOSED = "the engine is closed"
SETTLING = 8
"""Turns of the event loop between two forward passes: enough for an episode that was answered to
take its step in a world on this loop and to ask again, so that it joins the very next pass."""


class LocalSampler(Sampler):
    """Samples on this process's event loop, one forward pass after the other.

    One task, the pump, does all the work while there is any. With worlds on the same loop nothing
    depends on time: a run repeats itself bit for bit.
    """

    def __init__(self, model: Any, path: Path, max_model_len: int | None) -> None:
        self._model: Any = model
        self._path = path
        self._max_model_len = max_model_len
        self._vocabulary = model.get_input_embeddings().num_embeddings
        self._version = 0
        self._waiting: deque[Row] = deque()
        self._running: list[Row] = []
        self._pump_task: asyncio.Task[None] | None = None

    @property
    def max_model_len(self) -> int | None:
        """Most tokens of prompt and completion together; None if unbounded."""
        return self._max_model_len

    async def complete(self, request: Request) -> Completion:
        """Continue the request's ids.

        Raises:
            ValueError: the request cannot be computed; the model was not asked.
            Exception: what the forward pass raised; the sampler goes on.
        """
        self._check(request)
        row = Row(request=request, future=asyncio.get_running_loop().create_future())
        self._waiting.append(row)
        if self._pump_task is None or self._pump_task.done():
            self._pump_task = asyncio.create_task(self._pump())
        return await row.future  # cancelled with us: the pump then drops the row

    async def load(self, weights: Weights, version: int) -> None:
        """Sample from these weights from now on.

        Requests that are running start over, with the same random numbers, so that every
        completion is of one version.

        Raises:
            ValueError: a name is unknown or missing.
        """
        for row in self._running:
            self._path.leave(row, failed=True)
            row.restart()
        self._waiting.extendleft(reversed(self._running))
        self._running.clear()
        self._path.forget()
        copy_weights(self._model, weights)
        self._version = version

    def release(self, key: str) -> None:
        """No more requests will carry this key."""
        self._path.release(key)

    async def close(self) -> None:
        """Stop, and free the model. Requests that are still open fail."""
        if self._pump_task is not None:
            self._pump_task.cancel()
        for row in (*self._running, *self._waiting):
            if not row.future.done():
                row.future.set_exception(RuntimeError(CLOSED))
        for row in self._running:
            self._path.leave(row, failed=True)
        self._running.clear()
        self._waiting.clear()
        self._path.forget()
        self._model = None

    def _check(self, request: Request) -> None:
        if self._model is None:
            raise RuntimeError(CLOSED)
        length = len(request.token_ids)
        if length == 0 or request.max_tokens < 1:
            raise ValueError(
                f"a request needs a prompt and room for a reply; it has {length} prompt ids and "
                f"max_tokens {request.max_tokens}"
            )
        if self._max_model_len is not None and length + request.max_tokens > self._max_model_len:
            raise ValueError(
                f"{length} prompt ids and {request.max_tokens} tokens of reply exceed the "
                f"engine's max_model_len of {self._max_model_len}; shorten one, or raise the other"
            )
        if min(request.token_ids) < 0 or max(request.token_ids) >= self._vocabulary:
            raise ValueError(
                f"the prompt has ids outside the model's vocabulary of {self._vocabulary}; was it "
                "encoded by another model's tokenizer?"
            )

    async def _pump(self) -> None:
        while True:
            for _ in range(SETTLING):
                await asyncio.sleep(0)
            self._drop_cancelled()
            while self._waiting and self._path.admit(self._waiting[0]):
                self._running.append(self._waiting.popleft())
            if not self._running:
                return
            self._round()

    def _drop_cancelled(self) -> None:
        self._waiting = deque(row for row in self._waiting if not row.future.done())
        for row in [row for row in self._running if row.future.done()]:
            self._remove(row)

    @torch.inference_mode()
    def _round(self) -> None:
        """Bring every prompt up to date, and every row one id further."""
        for batch in self._path.batches(self._running):
            try:
                self._advance(batch)
            except Exception as error:
                for row in batch:
                    self._remove(row, failed=True)
                    row.future.set_exception(error)

    def _advance(self, batch: list[Row]) -> None:
        rows, logits_RV = self._path.forward(batch)
        if not rows:
            return
        requests = [row.request for row in rows]
        options = (
            ([row.uniforms.random() for row in rows], torch.float64),
            ([request.temperature for request in requests], torch.float32),
            ([request.top_p for request in requests], torch.float64),
            ([request.top_k for request in requests], torch.int64),
        )
        ids_R, logprobs_R = sample(
            logits_RV,
            *(torch.tensor(v, dtype=t, device=logits_RV.device) for v, t in options),
        )
        for row, token_id, logprob in zip(rows, ids_R.tolist(), logprobs_R.tolist(), strict=True):
            row.append(token_id, logprob)
            if (reason := row.finish_reason) is not None:
                self._remove(row)
                row.future.set_result(row.completion(reason, self._version))

    def _remove(self, row: Row, *, failed: bool = False) -> None:
        self._running.remove(row)
        self._path.leave(row, failed=failed)
