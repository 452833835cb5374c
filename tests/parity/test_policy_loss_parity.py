"""The losses of PPO, GRPO, GSPO, CISPO, RLOO and REINFORCE++, with all weights, equal the formulas.

Values and gradients, on random ragged batches whose padding holds infinities. Differences from the
papers, each with its factor:

- RLOO and REINFORCE sum over an episode's tokens: `aggregation: constant` is that sum over the
  constant.
- GSPO's ratio is of a token sequence, so an episode in two contexts has two.
- CISPO's lower bound is left out by the paper's own code: `clip_low: 1` is 0.
"""

import numpy as np
import pytest
import torch

from agentgym_core import losses
from agentgym_grpo.grpo import GRPO
from agentgym_ppo.ppo import PPO
from agentgym_reinforce_pp.reinforce_pp import ReinforcePP
from agentgym_rloo.rloo import RLOO

from . import naive
from .batches import loss_inputs, random_batch
from .compare import assert_same

SEEDS = range(6)
AGGREGATIONS = [("token-mean", None), ("episode-mean", None), ("constant", 37.0)]


def assert_equal_losses(inputs, algorithm, term, aggregation, constant=None, leaves=("logprobs",)):
    """The algorithm's weighted sum against the formula, in value and gradient."""
    weights_NT = inputs.weights(aggregation, constant)
    loss_NT, _ = algorithm.objective(inputs.tokens)
    found = (loss_NT * weights_NT).sum()
    each = [[term(token) for token in episode] for episode in inputs.scalars()]
    expected = naive.aggregated(each, aggregation, constant)
    assert_same(found.item(), expected.item())
    assert_same_gradients(inputs, found, expected, leaves)


def assert_same_gradients(inputs, found, expected, leaves=("logprobs",)):
    tensors = [getattr(inputs.tokens, f"{name}_NT") for name in leaves]
    ours = torch.autograd.grad(found, tensors, retain_graph=True)
    theirs = torch.autograd.grad(expected, tensors)
    for own, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 0
        assert_same(own, other)


@pytest.mark.parametrize("dual", [None, 1.5])
@pytest.mark.parametrize(("aggregation", "constant"), AGGREGATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_grpo(seed, aggregation, constant, dual):
    inputs = loss_inputs(random_batch(seed))

    def term(t):
        return naive.clipped(t["logprobs"], t["old_logprobs"], t["advantage"], 0.2, 0.28, dual)

    grpo = GRPO(clip_high=0.28, dual_clip=dual)
    assert_equal_losses(inputs, grpo, term, aggregation, constant)


@pytest.mark.parametrize("estimator", losses.KL_ESTIMATORS)
@pytest.mark.parametrize("seed", SEEDS)
def test_grpo_with_a_kl(seed, estimator):
    inputs = loss_inputs(random_batch(seed))

    def term(t):
        policy = naive.clipped(t["logprobs"], t["old_logprobs"], t["advantage"], 0.2, 0.2)
        kl = naive.kl(t["logprobs"], t["old_logprobs"], t["reference_logprobs"], estimator)
        return policy + 0.3 * kl

    assert_equal_losses(inputs, GRPO(kl_coef=0.3, kl_estimator=estimator), term, "episode-mean")


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.28), (0.2, 0.2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_cispo(seed, low, high):
    inputs = loss_inputs(random_batch(seed))

    def term(t):
        return naive.cispo(t["logprobs"], t["old_logprobs"], t["advantage"], low, high)

    cispo = GRPO(surrogate="cispo", clip_low=low, clip_high=high)
    assert_equal_losses(inputs, cispo, term, "token-mean")


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.28), (3e-4, 4e-4)])
@pytest.mark.parametrize("seed", SEEDS)
def test_gspo(seed, low, high):
    batch = random_batch(seed, contexts=1)
    credit = {sequence.episode: batch.generator.normal() for sequence in batch.sequences}
    advantages = tuple(np.where(s.mask, credit[s.episode], 0.0) for s in batch.sequences)
    inputs = loss_inputs(batch, advantages)
    gspo = GRPO(surrogate="gspo", clip_low=low, clip_high=high)
    loss_NT, _ = gspo.loss(inputs.tokens)
    found = (loss_NT * inputs.weights("episode-mean")).sum()
    episodes = [
        (
            [token["logprobs"] for token in episode],
            [token["old_logprobs"] for token in episode],
            episode[0]["advantage"],
        )
        for episode in inputs.scalars()
    ]
    expected = naive.gspo(episodes, low, high)
    assert_same(found.item(), expected.item())
    if expected.requires_grad:
        assert_same_gradients(inputs, found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_rloo(seed):
    inputs = loss_inputs(random_batch(seed))
    episodes = inputs.scalars()
    # One advantage for each episode, as the leave-one-out baseline gives.
    found = (RLOO().loss(inputs.tokens)[0] * inputs.weights("constant", 1.0)).sum()
    expected = -sum(t["advantage"] * t["logprobs"] for episode in episodes for t in episode) / len(
        episodes
    )
    assert_same(found.item(), expected.item())
    assert_same_gradients(inputs, found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_rloo_takes_an_episode_as_one_action(seed):
    batch = random_batch(seed)
    credit = {sequence.episode: batch.generator.normal() for sequence in batch.sequences}
    advantages = tuple(np.where(s.mask, credit[s.episode], 0.0) for s in batch.sequences)
    inputs = loss_inputs(batch, advantages)
    constant = 20.0
    found = (RLOO().loss(inputs.tokens)[0] * inputs.weights("constant", constant)).sum()
    expected = naive.reinforce(
        [([t["logprobs"] for t in tokens], tokens[0]["advantage"]) for tokens in inputs.scalars()]
    )
    assert_same(found.item() * constant, expected.item())
    assert_same_gradients(inputs, found * constant, expected)


@pytest.mark.parametrize("algorithm", [RLOO(clip=0.2), ReinforcePP(clip_low=0.2, clip_high=0.2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_clipped_ones_are_ppos(seed, algorithm):
    inputs = loss_inputs(random_batch(seed))

    def term(t):
        return naive.clipped(t["logprobs"], t["old_logprobs"], t["advantage"], 0.2, 0.2)

    assert_equal_losses(inputs, algorithm, term, "token-mean")


@pytest.mark.parametrize("value_clip", [0.5, None])
@pytest.mark.parametrize(("aggregation", "constant"), AGGREGATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_ppo(seed, aggregation, constant, value_clip):
    inputs = loss_inputs(random_batch(seed))

    def term(t):
        policy = naive.clipped(t["logprobs"], t["old_logprobs"], t["advantage"], 0.2, 0.2)
        critic = naive.value(t["values"], t["old_values"].item(), t["target"], value_clip)
        return policy + 0.7 * critic

    ppo = PPO(value_coef=0.7, value_clip=value_clip)
    assert_equal_losses(inputs, ppo, term, aggregation, constant, ("logprobs", "values"))
