"""The losses of GRPO, GSPO, CISPO and RLOO equal those of TRL, where the definitions agree.

What differs, and what is set so that it does not:

| | here | TRL |
|---|---|---|
| mean over tokens | `token-mean` | `bnpo` of one batch; `dapo` |
| mean over episodes | `episode-mean`, an episode once however many contexts it has | `grpo`, rows |
| `constant` | `aggregation_constant` | `dr_grpo`: `max_completion_length` |
| dual clip | for negative advantages | `delta`, for all: equal above 1 + high |
| KL `k3` | weighted by the token's ratio | `use_bias_correction_kl`; off, it is `k3-plain` |
| CISPO's bound | 1 + `clip_high` | `epsilon_high` is the bound itself; there is no lower one |
| RLOO's ratio | of each token, and only with `clip` | of the row; the same gradient on policy |

TRL has no PPO any more and computes advantages inside a method that also generates: the loops of
`naive.py` stand in for it there.
"""

import numpy as np
import pytest
import torch

from agentgym_grpo.grpo import GRPO
from agentgym_rloo.rloo import RLOO

from . import trl
from .batches import loss_inputs, random_batch
from .compare import assert_same

SEEDS = range(6)


def inputs_of(seed, *, equal=False):
    """A batch of one row for each episode, every row with trained tokens, as TRL has them."""
    batch = random_batch(seed, contexts=1, untrained=0.0)
    advantages = None
    if equal:
        credit = {sequence.episode: batch.generator.normal() for sequence in batch.sequences}
        advantages = tuple(np.where(s.mask, credit[s.episode], 0.0) for s in batch.sequences)
    return loss_inputs(batch, advantages)


def assert_equal_losses(inputs, algorithm, theirs, aggregation="token-mean", constant=None):
    loss_NT, _ = algorithm.objective(inputs.tokens)
    ours = (loss_NT * inputs.weights(aggregation, constant)).sum()
    assert_same(ours.item(), theirs.item())
    gradients = [torch.autograd.grad(loss, inputs.tokens.logprobs_NT)[0] for loss in (ours, theirs)]
    assert gradients[0].abs().max() > 0
    assert_same(*gradients)


@pytest.mark.parametrize(
    ("loss_type", "aggregation", "constant"),
    [
        ("bnpo", "token-mean", None),
        ("dapo", "token-mean", None),
        ("grpo", "episode-mean", None),
        ("dr_grpo", "constant", 37.0),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_grpo(seed, loss_type, aggregation, constant):
    inputs = inputs_of(seed)
    theirs = trl.grpo_loss(inputs.tokens, loss_type=loss_type, high=0.28, max_tokens=constant)
    assert_equal_losses(inputs, GRPO(clip_high=0.28), theirs, aggregation, constant)


@pytest.mark.parametrize("seed", SEEDS)
def test_dual_clip(seed):
    inputs = inputs_of(seed)
    theirs = trl.grpo_loss(inputs.tokens, loss_type="bnpo", delta=1.5)
    assert_equal_losses(inputs, GRPO(dual_clip=1.5), theirs)


@pytest.mark.parametrize(("estimator", "weighted"), [("k3", True), ("k3-plain", False)])
@pytest.mark.parametrize("seed", SEEDS)
def test_kl(seed, estimator, weighted):
    inputs = inputs_of(seed)
    theirs = trl.grpo_loss(inputs.tokens, loss_type="grpo", beta=0.3, weighted_kl=weighted)
    grpo = GRPO(kl_coef=0.3, kl_estimator=estimator)
    assert_equal_losses(inputs, grpo, theirs, "episode-mean")


@pytest.mark.parametrize(("loss_type", "aggregation"), [("grpo", "episode-mean"), ("bnpo", None)])
@pytest.mark.parametrize("seed", SEEDS)
def test_gspo(seed, loss_type, aggregation):
    inputs = inputs_of(seed, equal=True)
    # TRL's ratio is one for a row, so its advantage must be too.
    bounds = {"low": 0.2, "high": 0.28}
    tokens = inputs.tokens
    theirs = trl.grpo_loss(tokens, loss_type=loss_type, level="sequence", **bounds)
    gspo = GRPO(surrogate="gspo", clip_low=0.2, clip_high=0.28)
    assert_equal_losses(inputs, gspo, theirs, aggregation or "token-mean")


@pytest.mark.parametrize("seed", SEEDS)
def test_cispo(seed):
    inputs = inputs_of(seed)
    theirs = trl.grpo_loss(inputs.tokens, loss_type="cispo", high=1.28)
    assert_equal_losses(
        inputs, GRPO(surrogate="cispo", clip_low=1.0, clip_high=0.28), theirs, "token-mean"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_rloo_has_the_same_gradient_on_policy(seed):
    inputs = inputs_of(seed, equal=True)
    tokens = inputs.tokens
    tokens.old_logprobs_NT.copy_(tokens.logprobs_NT.detach())
    advantages_N = torch.tensor([values[-1] for values in inputs.advantages])
    theirs = trl.rloo_loss(tokens, advantages_N, clip=0.2)
    loss_NT, _ = RLOO().loss(tokens)
    ours = (loss_NT * inputs.weights("constant", 1.0)).sum()
    gradients = [torch.autograd.grad(loss, tokens.logprobs_NT)[0] for loss in (ours, theirs)]
    assert gradients[0].abs().max() > 0
    assert_same(*gradients)
