"""DPO's loss, implied rewards and gradient equal the paper's equation, token by token.

Random batches of episodes with several turns, of which some are not trained, in one or two
contexts; each episode is in as many pairs as its group gives. Differences from the paper:

- A trajectory's log-probability is over the trained tokens of all its turns and contexts; the
  paper's is over one completion.
- A trajectory without a trained token has log-ratio 0.
- `label_smoothing` is that of conservative DPO: the loss is not divided by 1 - 2 s, as in robust
  DPO (arXiv 2403.00409).
- The loss of the update is another, with the same gradient at the weights where it is computed;
  the `loss` among the metrics is the paper's.
"""

import numpy as np
import pytest
import torch

from . import naive
from .batches import random_batch
from .compare import assert_same
from .preferences import all_pairs, learn

SEEDS = range(8)


def leaves(batch):
    """The log-probabilities of each sequence, as tensors to derive by."""
    return [torch.tensor(line, requires_grad=True) for line in batch.scores.logprobs]


def trajectories(batch, own):
    """By episode, the log-probability and the reference's of each trained token."""
    reference = batch.scores.reference_logprobs
    chains = batch.chains()
    return {
        sequence.episode: [
            (own[at.sequence][at.token], float(reference[at.sequence][at.token]))
            for at in chains.get(sequence.episode, [])
        ]
        for sequence in batch.sequences
    }


@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("seed", SEEDS)
def test_loss_and_gradient(seed, smoothing, contexts):
    batch = random_batch(seed, contexts=contexts, untrained=0.3, interleaved=contexts > 1)
    pairs = all_pairs(batch)
    found = learn(batch, pairs, beta=0.4, smoothing=smoothing)
    own = leaves(batch)
    sides = trajectories(batch, own)
    expected = naive.dpo([(sides[a], sides[b]) for a, b in pairs], 0.4, smoothing)
    assert_same(found.metrics["loss"], expected.item())
    gradients = torch.autograd.grad(expected, own, materialize_grads=True)
    assert max(gradient.abs().max() for gradient in gradients) > 1e-3
    for ours, theirs in zip(found.gradients, gradients, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_implied_rewards_accuracy_and_margin(seed):
    batch = random_batch(seed, untrained=0.3)
    pairs = all_pairs(batch)
    found = learn(batch, pairs, beta=0.4, smoothing=0.1).metrics
    sides = trajectories(batch, batch.scores.logprobs)
    chosen, rejected = (
        [naive.implied_reward(sides[pair[side]], 0.4) for pair in pairs] for side in (0, 1)
    )
    assert_same(found["chosen_reward"], sum(chosen) / len(pairs))
    assert_same(found["rejected_reward"], sum(rejected) / len(pairs))
    differences = [a - b for a, b in zip(chosen, rejected, strict=True)]
    assert_same(found["preference_margin"], sum(differences) / len(pairs))
    right = [difference > 0 for difference in differences]
    assert_same(found["preference_accuracy"], sum(right) / len(pairs))
    assert found["pairs"] == len(pairs)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_trained_has_no_gradient_whatever_it_holds(seed):
    batch = random_batch(seed, untrained=0.4)
    before = learn(batch, all_pairs(batch), beta=0.4, smoothing=0.1)
    for line, sequence in zip(batch.scores.logprobs, batch.sequences, strict=True):
        line[~sequence.mask] = -1e6
    after = learn(batch, all_pairs(batch), beta=0.4, smoothing=0.1)
    assert after.metrics["loss"] == before.metrics["loss"]
    for sequence, one, other in zip(
        batch.sequences, before.gradients, after.gradients, strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert not one[~sequence.mask].any()
