"""Preferences between the episodes of a random batch, and what DPO makes of them."""

import itertools

import attrs
import numpy as np
import torch

from agentgym_core.types import Scores, TokenTensors
from agentgym_dpo.dpo import DPO
from agentgym_dpo.pairs import Preferences

from .batches import RandomBatch, padded


@attrs.frozen(eq=False)
class Learned:
    """What one call of `DPO.learn` found."""

    metrics: dict[str, float]
    gradients: tuple[np.ndarray, ...]
    """Of the loss by each token's log-probability: T values for each sequence of the batch."""


def all_pairs(batch: RandomBatch):
    """Every two episodes of a group, in that order: an episode is in as many pairs as it likes.

    Pairs without any trained token are none, as in `agentgym_dpo.pairs`.
    """
    trained = set(batch.chains())
    return tuple(
        pair
        for group in batch.groups().values()
        for pair in itertools.combinations(group, 2)
        if trained & set(pair)
    )


def learn(batch: RandomBatch, pairs, *, beta, smoothing) -> Learned:
    """The algorithm's own step, margins to loss, over a trainer that scores and derives."""
    run = _Trainer(batch)
    dpo = DPO(beta=beta, label_smoothing=smoothing)
    preferences = Preferences(sequences=batch.sequences, pairs=tuple(pairs))
    _, metrics = dpo.learn(run, 0, preferences.only(pairs))
    return Learned(metrics, run.gradients(batch))


class _Trainer:
    """A run, its trainer, and a policy that says what the batch's scores say."""

    def __init__(self, batch):
        self.trainer = self
        ids = [id(sequence.token_ids) for sequence in batch.sequences]
        scores = batch.scores
        self._own = dict(zip(ids, scores.logprobs, strict=True))
        self._reference = dict(zip(ids, scores.reference_logprobs, strict=True))
        self._gradients = {}

    def score(self, sequences, needs):
        assert needs == {"logprobs", "reference_logprobs"}
        ids = [id(sequence.token_ids) for sequence in sequences]
        return Scores(
            logprobs=tuple(self._own[name] for name in ids),
            reference_logprobs=tuple(self._reference[name] for name in ids),
        )

    def beating(self, loss):
        return loss

    def update(self, batch, loss):
        """One micro-batch, whose padding must not matter."""
        (minibatch,) = batch.minibatches
        rows = minibatch.rows
        width = max(map(len, rows)) + 2
        own = [self._own[id(row.token_ids)] for row in rows]
        tokens = TokenTensors(
            logprobs_NT=padded(own, width, -float("inf")).requires_grad_(),
            mask_NT=padded([row.mask for row in rows], width, 0.0) > 0,
            advantages_NT=padded([row.advantages for row in rows], width, 0.0),
            old_logprobs_NT=padded([row.old_logprobs for row in rows], width, -1.0),
            sampled_logprobs_NT=padded([row.sampled_logprobs for row in rows], width, 0.0),
            reference_logprobs_NT=padded([row.reference_logprobs for row in rows], width, 3.0),
        )
        loss_NT, _ = loss(tokens)
        total = (loss_NT * padded([row.weights for row in rows], width, 0.0)).sum()
        (gradient_NT,) = torch.autograd.grad(total, tokens.logprobs_NT)
        for row, line in zip(rows, gradient_NT.numpy(), strict=True):
            self._gradients[id(row.token_ids)] = line[: len(row)]
        return {"loss": float("nan"), "grad_norm": 1.0}

    def gradients(self, batch):
        """Of sequences that were in no row: 0."""
        return tuple(
            self._gradients.get(id(sequence.token_ids), np.zeros(len(sequence)))
            for sequence in batch.sequences
        )
