"""The started backend: scores given tokens, takes optimizer steps, saves and exports."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agentgym_core import hf
from agentgym_core.protocols import Loss, StartContext, Tokenizer, Trainer, Weights
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.types import Batch, FloatArray, Minibatch, Row, Scores, TokenSequence
from agentgym_torch.critic import Critic, hidden_states_kept
from agentgym_torch.language_model import checkpoint_layers, copy_weights, forward_at
from agentgym_torch.micro_batches import MicroBatch, pack
from agentgym_torch.ranks import sum_gradients
from agentgym_torch.snapshot import Snapshot
from agentgym_torch.tally import Tally

if TYPE_CHECKING:
    from agentgym_torch.backend import TorchBackend

OFFERED = frozenset({"logprobs", "reference_logprobs", "values"})
REMEDY = "the weights are as they were; a smaller learning_rate or max_grad_norm may help"


class TorchTrainer(Trainer):
    """One policy with its optimizer and, if asked for, a frozen reference and a critic."""

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
        self._reference_moved = False
        self._critic: Critic | None = None
        if "values" in context.needs:
            self._critic = Critic(backend.critic, model, context.model)
        if backend.gradient_checkpointing:
            checkpoint_layers(model)
            if self._critic is not None and self._critic.trunk is not None:
                checkpoint_layers(self._critic.trunk)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer: Any = self._adamw(self._parameters)
        self._critic_parameters = self._critic.parameters() if self._critic else []
        self._critic_optimizer: Any = (
            self._adamw(self._critic_parameters) if self._critic_parameters else None
        )

    def _adamw(self, parameters: Sequence[Tensor]) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.dim() >= 2]},
                {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=self._backend.learning_rate,
            betas=self._backend.betas,
            weight_decay=self._backend.weight_decay,
            fused=True,
        )

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """Evaluate the tokens under the mask; 0 elsewhere.

        Raises:
            ValueError: it has no such score, or was not told of it in `StartContext.needs`.
        """
        _check_needs(needs, self._offered)

        def scored(
            need: str, evaluate: Callable[[MicroBatch], Tensor]
        ) -> tuple[FloatArray, ...] | None:
            return self._score(evaluate, sequences) if need in needs else None

        return Scores(
            logprobs=scored("logprobs", lambda micro: self._logprobs(self._policy, micro)),
            reference_logprobs=scored(
                "reference_logprobs", lambda micro: self._logprobs(self._reference, micro)
            ),
            values=scored("values", lambda micro: self._evaluate(micro)[1]),
            final_values=self._final_values(sequences) if "values" in needs else None,
        )

    def _final_values(self, sequences: Sequence[TokenSequence]) -> FloatArray:
        """The value of a state is asked for by the token that would follow it, whichever it is."""
        cut = [index for index, sequence in enumerate(sequences) if sequence.truncated]
        followed = [
            attrs.evolve(
                sequences[index],
                token_ids=np.append(sequences[index].token_ids, 0),
                mask=np.append(np.zeros(len(sequences[index]), np.bool_), True),
            )
            for index in cut
        ]
        values = np.zeros(len(sequences))
        scores = self._score(lambda micro: self._evaluate(micro)[1], followed)
        values[cut] = [line[-1] for line in scores]
        return values

    def _score(
        self, evaluate: Callable[[MicroBatch], Tensor], sequences: Sequence[TokenSequence]
    ) -> tuple[FloatArray, ...]:
        lines: dict[int, FloatArray] = {}
        with torch.inference_mode():
            for micro in self._pack(sequences, self._ranks):
                values_NT = micro.spread(evaluate(micro)).double().cpu().numpy()
                lines |= zip(micro.members, values_NT, strict=True)
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
        before = [Snapshot(*model) for model in self._models()] if several else []
        tally = Tally(self._ranks)
        rows: Sequence[Row] = ()
        try:
            for minibatch in batch.minibatches:
                rows = minibatch.rows
                self._step(minibatch, loss, rate, tally, batch.critic_only)
        except FloatingPointError as error:
            guilty = self._guilty_tasks(rows, loss, batch.critic_only)  # under the weights it met
            self._zero_grad()
            for snapshot in before:
                snapshot.restore()
            raise FloatingPointError(f"{error}. {guilty}") from error
        return tally.metrics() | {"learning_rate": rate}

    def _models(self) -> list[tuple[Sequence[Tensor], Any]]:
        """The policy's parameters and optimizer, and the critic's."""
        models: list[tuple[Sequence[Tensor], Any]] = [(self._parameters, self._optimizer)]
        if self._critic is not None:
            models.append((self._critic_parameters, self._critic_optimizer))
        return models

    def _zero_grad(self) -> None:
        for _, optimizer in self._models():
            optimizer.zero_grad()

    def _step(
        self, minibatch: Minibatch, loss: Loss, rate: float, tally: Tally, critic_only: bool
    ) -> None:
        self._zero_grad()
        micros = self._pack(minibatch.rows, self._ranks)
        if not micros:  # on no rank, then
            return
        own = sum(
            self._backward(minibatch.rows, micro, loss, tally, critic_only) for micro in micros
        )
        total = sum(self._ranks.gather(own))
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is {total}: {REMEDY}")
        limit = self._backend.max_grad_norm or math.inf
        norms: list[float] = []
        for parameters, _ in self._models():
            sum_gradients(self._ranks, parameters)
            norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, limit)))
            if not math.isfinite(norms[-1]):
                raise FloatingPointError(f"the gradient's norm is {norms[-1]}: {REMEDY}")
        critic_rate = self._backend.critic.learning_rate or self._backend.learning_rate
        rates = (rate, rate * critic_rate / self._backend.learning_rate)
        for (_, optimizer), own_rate in zip(self._models(), rates, strict=False):
            for group in optimizer.param_groups:
                group["lr"] = own_rate
            optimizer.step()  # which passes over parameters without a gradient
        named = dict(zip(("grad_norm", "critic_grad_norm"), norms, strict=False))
        tally.add_step(loss=total, **named)

    def _backward(
        self,
        rows: Sequence[Row],
        micro: MicroBatch,
        loss: Loss,
        tally: Tally,
        critic_only: bool = False,
    ) -> float:
        """Add one micro-batch's share to the gradient; returns its share of the loss."""
        logprobs_M, values_M = self._evaluate(micro, critic_only=critic_only, logprobs=True)
        values_NT = None if self._critic is None else micro.spread(values_M)
        loss_NT, metrics = loss(micro.token_tensors(rows, micro.spread(logprobs_M), values_NT))
        weights_NT = micro.pad([rows[index].weights for index in micro.members])
        share = (loss_NT * weights_NT)[micro.mask_NT].sum()
        if micro.is_repeat:
            (share * 0.0).backward()
            return 0.0
        share.backward()
        tally.add_tokens(micro.mask_NT, metrics)
        return float(share.detach())

    def _evaluate(
        self, micro: MicroBatch, *, critic_only: bool = False, logprobs: bool = False
    ) -> tuple[Any, Any]:
        """logprobs_M if asked for, and values_M if there is a critic; else None.

        With `critic_only` the gradient stops before the policy, also in a trunk that they share.
        """
        critic = self._critic
        if critic is None:
            return self._logprobs(self._policy, micro), None
        with_gradient = torch.is_grad_enabled() and not critic_only
        if critic.trunk is None:
            with (
                torch.set_grad_enabled(with_gradient),
                hidden_states_kept(self._policy) as hidden,
            ):
                logprobs_M = self._logprobs(self._policy, micro)
            return logprobs_M, critic.head(hidden[0].detach() if critic_only else hidden[0])
        logprobs_M = None
        if logprobs:
            with torch.set_grad_enabled(with_gradient):
                logprobs_M = self._logprobs(self._policy, micro)
        half = self._backend.dtype == "bfloat16"
        with torch.autocast(self._device.type, torch.bfloat16, enabled=half):
            hidden_MH = critic.hidden(
                micro.rows_M,
                micro.columns_M - 1,
                input_ids=micro.token_ids_NT[:, :-1],
                use_cache=False,
            )
        return logprobs_M, critic.head(hidden_MH)

    def _guilty_tasks(self, rows: Sequence[Row], loss: Loss, critic_only: bool) -> str:
        """Of the rows that give such a loss or gradient also alone, in words."""
        guilty: list[str] = []
        for row in rows:
            self._zero_grad()
            micros = self._pack([row], ALONE)  # each rank looks through all rows for itself
            total = sum(self._backward([row], m, loss, Tally(), critic_only) for m in micros)
            parameters = [*self._parameters, *self._critic_parameters]
            norm = torch.nn.utils.clip_grad_norm_(parameters, math.inf)
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

    def refresh_reference(self) -> None:
        """The reference becomes the policy as it stands, and is saved from then on."""
        assert self._reference is not None, "no reference was asked for at the start"
        copy_weights(self._reference, self.weights())
        self._reference_moved = True

    def weights(self) -> Weights:
        """The policy's parameters as they stand; tied ones once."""
        return [(name, tensor.detach()) for name, tensor in self._policy.named_parameters()]

    def save(self, folder: Path) -> None:
        """Write `policy.safetensors`, and the optimizer's and random generators' state.

        Where there are such, `critic.safetensors` as well, and `reference.safetensors` if it is no
        longer the policy of the start.
        """
        if self._ranks.rank:  # all have the same
            return
        folder.mkdir(parents=True, exist_ok=True)
        _save(dict(self.weights()), folder / "policy.safetensors")
        state = {"optimizer": self._optimizer.state_dict(), "random": torch.get_rng_state()}
        if self._critic is not None:
            _save(self._critic.state(), folder / "critic.safetensors")
            state["critic_optimizer"] = self._critic_optimizer.state_dict()
        if self._reference_moved:
            _save(dict(self._reference.named_parameters()), folder / "reference.safetensors")
        if self._device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self._device)
        torch.save(state, folder / "optimizer.pt")

    def load(self, folder: Path) -> None:
        """Go on where `save` stood, bit for bit on the same machine."""
        copy_weights(self._policy, load_file(folder / "policy.safetensors").items())
        state = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        if self._critic is not None:
            path = folder / "critic.safetensors"
            self._critic.load(load_file(path), path)
            self._critic_optimizer.load_state_dict(state["critic_optimizer"])
        moved = folder / "reference.safetensors"
        if self._reference is not None and moved.exists():
            copy_weights(self._reference, load_file(moved).items())
            self._reference_moved = True
        torch.set_rng_state(state["random"])
        if self._device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"], self._device)

    def export(self, folder: Path) -> None:
        """Write the policy and its tokenizer as a folder that transformers loads."""
        if self._ranks.rank == 0:
            hf.export(self._policy, self._tokenizer, folder)

    def close(self) -> None:
        """Free the models and the optimizers."""
        self._parameters = []
        self._critic_parameters = []
        self._policy = self._reference = self._optimizer = None
        self._critic = self._critic_optimizer = None


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)


def _check_needs(needs: frozenset[str], offered: frozenset[str]) -> None:
    lacking = sorted(needs - offered)
    if lacking:
        raise ValueError(
            f"the trainer has no {' and no '.join(lacking)}; it was started with "
            f"{', '.join(sorted(offered))}. What needs a model of its own must "
            "be among the needs that the run states at its start"
        )
