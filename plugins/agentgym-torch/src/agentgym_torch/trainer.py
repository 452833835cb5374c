"""The started backend: scores given tokens, takes optimizer steps, saves and exports."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import attrs
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agentgym_core import hf
from agentgym_core.protocols import Loss, Need, StartContext, Tokenizer, Trainer, Weights
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.types import Batch, FloatArray, Minibatch, Row, Scores, TokenSequence
from agentgym_torch.critic import Critic
from agentgym_torch.forward import Forward
from agentgym_torch.language_model import checkpoint_layers, copy_weights
from agentgym_torch.learner import REMEDY, Learner
from agentgym_torch.micro_batches import MicroBatch, pack
from agentgym_torch.tally import Tally

if TYPE_CHECKING:
    from agentgym_torch.backend import TorchBackend

OFFERED = frozenset(get_args(Need))


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
        self._forward = Forward(
            policy=model,
            critic=self._critic,
            temperature=context.temperature,
            half=backend.dtype == "bfloat16",
        )
        self._learners = [Learner(backend, model.parameters())]
        if self._critic is not None:
            rate = backend.critic.learning_rate
            self._learners.append(Learner(backend, self._critic.parameters(), "critic_", rate))

    def score(self, sequences: Sequence[TokenSequence], needs: frozenset[str]) -> Scores:
        """Evaluate the tokens under the mask; 0 elsewhere.

        Raises:
            ValueError: it has no such score, or was not told of it in `StartContext.needs`.
        """
        _check_needs(needs, self._offered)
        forward = self._forward

        def scored(
            need: str, evaluate: Callable[[MicroBatch], Tensor]
        ) -> tuple[FloatArray, ...] | None:
            return self._score(evaluate, sequences) if need in needs else None

        return Scores(
            logprobs=scored("logprobs", lambda micro: forward.logprobs(self._policy, micro)),
            reference_logprobs=scored(
                "reference_logprobs", lambda micro: forward.logprobs(self._reference, micro)
            ),
            values=scored("values", forward.values),
            final_values=self._final_values(sequences) if "final_values" in needs else None,
        )

    def _final_values(self, sequences: Sequence[TokenSequence]) -> FloatArray:
        """A state's value is asked for by the token that would follow it, whichever that is."""
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
        values[cut] = [line[-1] for line in self._score(self._forward.values, followed)]
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
            `loss`, `grad_norm` and `critic_grad_norm` (before clipping), averaged over the
            minibatches; `learning_rate`; and the loss's metrics, averaged over all trained tokens.

        Raises:
            FloatingPointError: a loss or gradient is not finite. Weights and optimizer are what
                they were before the call.
        """
        if batch.critic_only and self._critic is None:
            raise ValueError("the batch is for the critic only, and nothing asked for one")
        rate = self._backend.learning_rate_at(batch.step, self._context.num_steps)
        several = len(batch.minibatches) > 1
        before = [learner.snapshot() for learner in self._learners] if several else []
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

    def _step(
        self, minibatch: Minibatch, loss: Loss, rate: float, tally: Tally, critic_only: bool
    ) -> None:
        self._zero_grad()
        micros = self._pack(minibatch.rows, self._ranks)
        if not micros:  # on no rank, then
            return
        rows = minibatch.rows
        own = sum(self._backward(rows, micro, loss, tally, critic_only) for micro in micros)
        total = sum(self._ranks.gather(own))
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is {total}: {REMEDY}")
        # All norms before any step: a critic that is not finite must not find the policy moved.
        names = ("grad_norm", "critic_grad_norm")[: len(self._learners)]
        norms = [learner.sum_up(self._ranks) for learner in self._learners]
        for learner in self._learners:
            learner.step(rate)
        tally.add_step(loss=total, **dict(zip(names, norms, strict=True)))

    def _zero_grad(self) -> None:
        for learner in self._learners:
            learner.optimizer.zero_grad()

    def _backward(
        self, rows: Sequence[Row], micro: MicroBatch, loss: Loss, tally: Tally, critic_only: bool
    ) -> float:
        """Add one micro-batch's share to the gradient; returns its share of the loss."""
        logprobs_M, values_M = self._forward.logprobs_and_values(micro, critic_only=critic_only)
        values_NT = None if values_M is None else micro.spread(values_M)
        loss_NT, metrics = loss(micro.token_tensors(rows, micro.spread(logprobs_M), values_NT))
        weights_NT = micro.pad([rows[index].weights for index in micro.members])
        share = (loss_NT * weights_NT)[micro.mask_NT].sum()
        if micro.is_repeat:
            share = share * 0.0
        if share.requires_grad:  # a loss without values has none in a critic's warm-up
            share.backward()
        if micro.is_repeat:
            return 0.0
        tally.add_tokens(micro.mask_NT, metrics)
        return float(share.detach())

    def _guilty_tasks(self, rows: Sequence[Row], loss: Loss, critic_only: bool) -> str:
        """Of the rows that give such a loss or gradient also alone, in words."""
        guilty: list[str] = []
        for row in rows:
            self._zero_grad()
            micros = self._pack([row], ALONE)  # each rank looks through all rows for itself
            total = sum(self._backward([row], m, loss, Tally(), critic_only) for m in micros)
            if not math.isfinite(total + sum(learner.norm() for learner in self._learners)):
                guilty.append(row.task)
        if len(guilty) == len(rows):
            return "Every sequence of that minibatch gives it"
        names = ", ".join(sorted(set(guilty))[:5])
        return f"It comes from task {names}" if guilty else "No sequence gives it alone"

    def _pack(
        self, sequences: Sequence[TokenSequence] | Sequence[Row], ranks: Ranks
    ) -> list[MicroBatch]:
        return pack(sequences, self._backend.tokens_per_micro_batch, self._device, ranks)

    def refresh_reference(self) -> None:
        """The reference becomes the policy as it stands, and is saved from then on.

        Raises:
            ValueError: there is none; it must be among the needs of the start.
        """
        _check_needs(frozenset({"reference_logprobs"}), self._offered)
        copy_weights(self._reference, self.weights())
        self._reference_moved = True

    def weights(self) -> Weights:
        """The policy's parameters as they stand; tied ones once."""
        return [(name, tensor.detach()) for name, tensor in self._policy.named_parameters()]

    def save(self, folder: Path) -> None:
        """Write `policy.safetensors`, and the optimizer's and random generators' state.

        Where there are such, also `critic.safetensors`, and `reference.safetensors` once it is no
        longer the policy of the start.
        """
        if self._ranks.rank:  # all have the same
            return
        folder.mkdir(parents=True, exist_ok=True)
        _save(dict(self.weights()), folder / "policy.safetensors")
        if self._critic is not None:
            _save(self._critic.state(), folder / "critic.safetensors")
        if self._reference_moved:
            _save(dict(self._reference.named_parameters()), folder / "reference.safetensors")
        state = {f"{each.prefix}optimizer": each.optimizer.state_dict() for each in self._learners}
        state["random"] = torch.get_rng_state()
        if self._device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self._device)
        torch.save(state, folder / "optimizer.pt")

    def load(self, folder: Path) -> None:
        """Go on where `save` stood, bit for bit on the same machine.

        Raises:
            ValueError: it was written without a critic, or with another one.
        """
        copy_weights(self._policy, load_file(folder / "policy.safetensors").items())
        if self._critic is not None:
            self._critic.load(folder / "critic.safetensors")
        moved = folder / "reference.safetensors"
        if self._reference is not None and moved.exists():
            copy_weights(self._reference, load_file(moved).items())
            self._reference_moved = True
        state = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        for learner in self._learners:
            learner.optimizer.load_state_dict(state[f"{learner.prefix}optimizer"])
        torch.set_rng_state(state["random"])
        if self._device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"], self._device)

    def export(self, folder: Path) -> None:
        """Write model and tokenizer as transformers does."""
        if not self._ranks.rank:
            hf.export(self._policy, self._tokenizer, folder)

    def close(self) -> None:
        """Free the models and the optimizers."""
        self._learners = []
        self._policy = self._reference = self._critic = None
        self._forward: Any = None


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
