"""DPO's loss, metrics and gradient equal those of TRL's `DPOTrainer`, where definitions agree.

What differs, and what is set so that it does not:

| | here | TRL |
|---|---|---|
| a trajectory | any number of contexts | one row: they are laid end to end |
| trained tokens | what the policy said, in all turns | all after the prompt: given our mask |
| `label_smoothing` | conservative DPO | none in `sigmoid`; the same in `aot` of one pair |
| a trajectory in several pairs | one row, whose credit adds up | a row in each pair |
| metrics | means over the step's pairs | means over a device's batch |
| reference | the policy with which the stage began | a second model, of the user's choice |
"""

import numpy as np
import pytest
import torch

from . import trl
from .batches import padded, random_batch
from .compare import assert_same
from .preferences import all_pairs, learn

SEEDS = range(6)
BETA = 0.4


class Rows:
    """A row for each side of each pair, first all chosen: an episode's contexts end to end."""

    def __init__(self, batch, pairs):
        self.batch = batch
        self.own = [torch.tensor(line, requires_grad=True) for line in batch.scores.logprobs]
        self._episodes = [pair[side] for side in (0, 1) for pair in pairs]
        self.reference_NT = self._padded(batch.scores.reference_logprobs, 3.0)
        self.mask_NT = self._padded([s.mask for s in batch.sequences], 0.0) > 0

    def _padded(self, lines, filling):
        rows = [np.concatenate([lines[i] for i in self._members(e)]) for e in self._episodes]
        return padded(rows, max(map(len, rows)) + 2, filling)

    def _members(self, episode):
        return [i for i, s in enumerate(self.batch.sequences) if s.episode == episode]

    def logprobs_NT(self):
        """Derivable by `own`."""
        rows = [torch.cat([self.own[i] for i in self._members(e)]) for e in self._episodes]
        filled_NT = torch.full(self.mask_NT.shape, -5.0, dtype=torch.float64)
        for index, row in enumerate(rows):
            filled_NT[index, : len(row)] = row
        return filled_NT

    def trl(self, loss_type, smoothing=0.0):
        """TRL's loss and metrics."""
        return trl.dpo_loss(
            self.logprobs_NT(),
            self.reference_NT,
            self.mask_NT,
            loss_type=loss_type,
            beta=BETA,
            smoothing=smoothing,
        )

    def assert_same_gradients(self, found, loss):
        """Of each token of each sequence."""
        expected = torch.autograd.grad(loss, self.own, materialize_grads=True)
        assert max(gradient.abs().max() for gradient in expected) > 1e-3
        for ours, theirs in zip(found.gradients, expected, strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_sigmoid(seed, contexts):
    batch = random_batch(seed, contexts=contexts)
    pairs = all_pairs(batch)
    found = learn(batch, pairs, beta=BETA, smoothing=0.0)
    rows = Rows(batch, pairs)
    loss, metrics = rows.trl("sigmoid")
    assert_same(found.metrics["loss"], loss.item())
    rows.assert_same_gradients(found, loss)
    names = {
        "chosen_reward": "rewards/chosen",
        "rejected_reward": "rewards/rejected",
        "preference_margin": "rewards/margins",
        "preference_accuracy": "rewards/accuracies",
    }
    for ours, theirs in names.items():
        assert_same(found.metrics[ours], metrics[theirs])


@pytest.mark.parametrize("seed", SEEDS)
def test_label_smoothing(seed):
    """TRL's `aot` sorts the log-ratios of a batch: of one pair it is conservative DPO."""
    batch = random_batch(seed)
    pairs = all_pairs(batch)
    found = learn(batch, pairs, beta=BETA, smoothing=0.2)
    rows = [Rows(batch, [pair]) for pair in pairs]
    losses = [row.trl("aot", 0.2)[0] for row in rows]
    assert_same(found.metrics["loss"], sum(losses).item() / len(pairs))
    gradients = [
        torch.autograd.grad(loss, row.own, materialize_grads=True)
        for loss, row in zip(losses, rows, strict=True)
    ]
    for index, ours in enumerate(found.gradients):
        assert_same(ours, sum(gradient[index] for gradient in gradients) / len(pairs))


@pytest.mark.parametrize("smoothing", [0.1, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_robust_is_another_smoothing(seed, smoothing):
    """With a the loss and b that of the pair turned round: (1 - s) a + s b here, and in TRL's
    `robust` ((1 - s) a - s b) / (1 - 2 s)."""
    batch = random_batch(seed)
    pairs = all_pairs(batch)
    rows = Rows(batch, pairs)
    plain, _ = rows.trl("sigmoid")
    robust, _ = rows.trl("robust", smoothing)
    turned = ((1 - smoothing) * plain - (1 - 2 * smoothing) * robust) / smoothing
    found = learn(batch, pairs, beta=BETA, smoothing=smoothing)
    loss = (1 - smoothing) * plain + smoothing * turned
    assert_same(found.metrics["loss"], loss.item())
    rows.assert_same_gradients(found, loss)
