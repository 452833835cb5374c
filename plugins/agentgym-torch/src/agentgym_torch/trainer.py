"""The started backend: scores given tokens, takes optimizer steps, saves and exports."""

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agentgym_core import hf
from agentgym_core.protocols import Loss, StartContext, Tokenizer, Trainer, Weights
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.types import Batch, FloatArray, Minibatch, Row, Scores, TokenSequence
from agentgym_torch.language_model import checkpoint_layers, copy_weights, forward_at
from agentgym_torch.micro_batches import MicroBatch, pack
from agentgym_torch.ranks import sum_gradients
from agentgym_torch.snapshot import Snapshot
from agentgym_torch.tally import Tally

if TYPE_CHECKING:
    from agentgym_torch.backend import TorchBackend

OFFERED = frozenset({"logprobs", "reference_logprobs"})
REMEDY = "the weights are as they were; a smaller learning_rate or max_grad_norm may help"


class TorchTrainer(Trainer):
    """One policy with its optimizer and, if asked for, the frozen policy it started as."""

    def __init__(
        self, backend: "TorchBackend", context: StartContext, model: Any, tokenizer: Tokenizer
    ) -> None:
        _check_needs(context.needs, OFFERED)
        if context.temperature <= 0:
            raise ValueError(
                f"the logits are divided by the sampling temperature, which must be above 0 in "
                f"training, got {context.temperature}; greedy decoding is for evaluation"
            )
        self._backend = backend
        self._context = context
        self._tokenizer = tokenizer
        self._policy: Any = model
        self._device = model.device
        self._ranks = context.ranks
        self._offered = OFFERED & (context.needs | {"logprobs"})
        self._reference: Any = None
        if "reference_logprobs" in context.needs:
            self._reference = copy.deepcopy(model).requires_grad_(False)
        if backend.gradient_checkpointing:
            checkpoint_layers(model)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer: Any = torch.optim.AdamW(
            [
                {"params": [p for p in self._parameters if p.dim() >= 2]},
                {"params": [p for p in self._parameters if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=backend.learning_rate,
            betas=backend.betas,
            weight_decay=backend.weight_decay,
            fused=True,
        )

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """Evaluate the tokens under the mask; 0 elsewhere.

        Raises:
            ValueError: it has no such score, or was not told of it in `StartContext.needs`.
        """
        _check_needs(needs, self._offered)
        return Scores(
            logprobs=self._score(self._policy, sequences) if "logprobs" in needs else None,
            reference_logprobs=(
                self._score(self._reference, sequences) if "reference_logprobs" in needs else None
            ),
        )

    def _score(self, model: Any, sequences: Sequence[TokenSequence]) -> tuple[FloatArray, ...]:
        lines: dict[int, FloatArray] = {}
        with torch.inference_mode():
            for micro in self._pack(sequences, self._ranks):
                logprobs_NT = micro.spread(self._logprobs(model, micro)).double().cpu().numpy()
                lines |= zip(micro.members, logprobs_NT, strict=True)
        scores = [np.zeros(len(sequence)) for sequence in sequences]
        for share in self._ranks.gather(lines):
            for index, line in share.items():
                length = min(len(line), len(scores[index]))
                scores[index][:length] = line[:length]
        return tuple(scores)

    def update(self, batch: Batch, loss: Loss) -> Mapping[str, float]:
        """Take one optimizer step for each minibatch; a minibatch without trained tokens has none.

        Returns:
            `loss` and `grad_norm` (before clipping), averaged over the minibatches;
            `learning_rate`; and the loss's metrics, averaged over all trained tokens.

        Raises:
            FloatingPointError: a loss or gradient is not finite. Weights and optimizer are what
                they were before the call.
        """
        rate = self._backend.learning_rate_at(batch.step, self._context.num_steps)
        several = len(batch.minibatches) > 1
        before = Snapshot(self._parameters, self._optimizer) if several else None
        tally = Tally(self._ranks)
        rows: Sequence[Row] = ()
        try:
            for minibatch in batch.minibatches:
                rows = minibatch.rows
                self._step(minibatch, loss, rate, tally)
        except FloatingPointError as error:
            guilty = self._guilty_tasks(rows, loss)  # under the weights that it met
            self._optimizer.zero_grad()
            if before is not None:
                before.restore()
            raise FloatingPointError(f"{error}. {guilty}") from error
        return tally.metrics() | {"learning_rate": rate}

    def _step(self, minibatch: Minibatch, loss: Loss, rate: float, tally: Tally) -> None:
        self._optimizer.zero_grad()
        micros = self._pack(minibatch.rows, self._ranks)
        if not micros:  # on no rank, then
            return
        own = sum(self._backward(minibatch.rows, micro, loss, tally) for micro in micros)
        total = sum(self._ranks.gather(own))
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is {total}: {REMEDY}")
        sum_gradients(self._ranks, self._parameters)
        limit = self._backend.max_grad_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, limit))
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient's norm is {norm}: {REMEDY}")
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        tally.add_step(loss=total, grad_norm=norm)

    def _backward(self, rows: Sequence[Row], micro: MicroBatch, loss: Loss, tally: Tally) -> float:
        """Add one micro-batch's share to the gradient; returns its share of the loss."""
        logprobs_NT = micro.spread(self._logprobs(self._policy, micro))
        loss_NT, metrics = loss(micro.token_tensors(rows, logprobs_NT))
        weights_NT = micro.pad([rows[index].weights for index in micro.members])
        share = (loss_NT * weights_NT)[micro.mask_NT].sum()
        if micro.is_repeat:
            (share * 0.0).backward()
            return 0.0
        share.backward()
        tally.add_tokens(micro.mask_NT, metrics)
        return float(share.detach())

    def _guilty_tasks(self, rows: Sequence[Row], loss: Loss) -> str:
        """Of the rows that give such a loss or gradient also alone, in words."""
        guilty: list[str] = []
        for row in rows:
            self._optimizer.zero_grad()
            micros = self._pack([row], ALONE)  # each rank looks through all rows for itself
            total = sum(self._backward([row], micro, loss, Tally()) for micro in micros)
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, math.inf)
            if not math.isfinite(total + float(norm)):
                guilty.append(row.task)
        if len(guilty) == len(rows):
            return "Every sequence of that minibatch gives it"
        names = ", ".join(sorted(set(guilty))[:5])
        return f"It comes from task {names}" if guilty else "No sequence gives it alone"

    def _pack(
        self, sequences: Sequence[TokenSequence] | Sequence[Row], ranks: Ranks
    ) -> list[MicroBatch]:
        return pack(sequences, self._backend.tokens_per_micro_batch, self._device, ranks)

    def _logprobs(self, model: Any, micro: MicroBatch) -> Tensor:
        """Log-probability of each evaluated token at the sampling temperature, as logprobs_M."""
        half = self._backend.dtype == "bfloat16"
        with torch.autocast(self._device.type, torch.bfloat16, enabled=half):
            logits_MV, _ = forward_at(
                model,
                micro.rows_M,
                micro.columns_M - 1,
                input_ids=micro.token_ids_NT[:, :-1],
                use_cache=False,
            )
        targets_M = micro.token_ids_NT[micro.rows_M, micro.columns_M]
        scaled_MV = logits_MV.float() / self._context.temperature
        return -torch.nn.functional.cross_entropy(scaled_MV, targets_M, reduction="none")

    def weights(self) -> Weights:
        """The policy's parameters as they stand; tied ones once."""
        return [(name, tensor.detach()) for name, tensor in self._policy.named_parameters()]

    def save(self, folder: Path) -> None:
        """Write `policy.safetensors`, and the optimizer's and random generators' state."""
        if self._ranks.rank:  # all have the same
            return
        folder.mkdir(parents=True, exist_ok=True)
        policy = {name: tensor.contiguous() for name, tensor in self.weights()}
        save_file(policy, folder / "policy.safetensors")
        state = {"optimizer": self._optimizer.state_dict(), "random": torch.get_rng_state()}
        if self._device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self._device)
        torch.save(state, folder / "optimizer.pt")

    def load(self, folder: Path) -> None:
        """Go on where `save` stood, bit for bit on the same machine. The reference stays."""
        copy_weights(self._policy, load_file(folder / "policy.safetensors").items())
        state = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if self._device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"], self._device)

    def export(self, folder: Path) -> None:
        """Write the policy and its tokenizer as a folder that transformers loads."""
        if self._ranks.rank == 0:
            hf.export(self._policy, self._tokenizer, folder)

    def close(self) -> None:
        """Free the models and the optimizer."""
        self._parameters = []
        self._policy = self._reference = self._optimizer = None


def _check_needs(needs: frozenset[str], offered: frozenset[str]) -> None:
    lacking = sorted(needs - offered)
    if lacking:
        raise ValueError(
            f"the trainer has no {' and no '.join(lacking)}; it was started with "
            f"{', '.join(sorted(offered))}. Values need a backend with a critic; "
            "reference_logprobs must be among the needs that the run states at its start"
        )
