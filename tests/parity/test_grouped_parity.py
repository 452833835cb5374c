"""Credit against other attempts, and over the batch, equals the papers' formulas.

Differences from the papers, which the loops here share:

- GRPO: the deviation is that of a sample (n - 1); the paper says no more than std.
- A group of one episode, or of equal rewards, has credit 0.
- REINFORCE++: time runs over trained tokens alone, through all contexts of an episode; the paper's
  single reward at the end is the rewards of turns here.
"""

import pytest

from agentgym_core.types import Scores
from agentgym_grpo.group_relative import GroupRelative
from agentgym_reinforce_pp.normalised import NormalisedBaseline, NormalisedReturns
from agentgym_rloo.leave_one_out import LeaveOneOut

from . import naive
from .batches import random_batch
from .compare import assert_same

BATCHES = [(seed, interleaved) for seed in range(10) for interleaved in (False, True)]


def by_episode(batch, credit):
    """The naive credit of each episode, from one function of a group's rewards."""
    expected = {}
    for group in batch.groups().values():
        expected |= zip(group, credit(list(group.values())), strict=True)
    return expected


def assert_spread(batch, found, expected):
    for episode, chain in batch.chains().items():
        assert_same(batch.read(found.values, chain), [expected[episode]] * len(chain))


@pytest.mark.parametrize("scale", ["std", "none"])
@pytest.mark.parametrize(("seed", "interleaved"), BATCHES)
def test_group_relative(seed, interleaved, scale):
    batch = random_batch(seed, interleaved=interleaved)
    found = GroupRelative(scale=scale, eps=1e-4)(batch.sequences, Scores())
    expected = by_episode(batch, lambda group: naive.group_relative(group, scale, 1e-4))
    assert_spread(batch, found, expected)


@pytest.mark.parametrize(("seed", "interleaved"), BATCHES)
def test_leave_one_out(seed, interleaved):
    batch = random_batch(seed, interleaved=interleaved)
    found = LeaveOneOut()(batch.sequences, Scores())
    assert_spread(batch, found, by_episode(batch, naive.leave_one_out))


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize(("seed", "interleaved"), BATCHES)
def test_reinforce_pp(seed, interleaved, gamma):
    batch = random_batch(seed, interleaved=interleaved)
    found = NormalisedReturns(gamma=gamma)(batch.sequences, Scores())
    rewards = [sequence.rewards for sequence in batch.sequences]
    chains = list(batch.chains().values())
    returns = [naive.returns_to_go(batch.read(rewards, chain), gamma) for chain in chains]
    expected = naive.normalised(returns, eps=1e-8, less=0)
    for chain, credit in zip(chains, expected, strict=True):
        assert_same(batch.read(found.values, chain), credit)


@pytest.mark.parametrize(("seed", "interleaved"), BATCHES)
def test_reinforce_pp_baseline(seed, interleaved):
    batch = random_batch(seed, interleaved=interleaved)
    found = NormalisedBaseline()(batch.sequences, Scores())
    above = by_episode(batch, lambda group: [r - sum(group) / len(group) for r in group])
    chains = batch.chains()
    raw = [[above[episode]] * len(chain) for episode, chain in chains.items()]
    expected = naive.normalised(raw, eps=1e-8, less=0)
    for chain, credit in zip(chains.values(), expected, strict=True):
        assert_same(batch.read(found.values, chain), credit)
