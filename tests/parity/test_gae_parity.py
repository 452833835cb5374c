"""GAE by token and by turn equals the definition, on random ragged batches.

Differences from the definition, which the loops here share:

- Time runs over the trained tokens (turns) of an episode alone, through all its contexts.
- `gae-turn` takes the value of the state in which a turn began, and gives each token its turn's
  credit.
- Whitening is over the trained tokens of the whole batch.
"""

import numpy as np
import pytest

from agentgym_ppo.gae import GAE
from agentgym_ppo.gae_turn import TurnGAE

from . import naive
from .batches import random_batch
from .compare import assert_same

BATCHES = [(seed, interleaved) for seed in range(10) for interleaved in (False, True)]
# gamma, lam, bootstrap; without a discount a cut is an end.
SETTINGS = [
    (1.0, 1.0, False),
    (1.0, 0.7, False),
    (0.99, 0.95, False),
    (0.99, 0.95, True),
    (0.9, 0.0, True),
]


def end_of(batch, episode, bootstrap):
    return batch.final_value(episode) if bootstrap else 0.0


@pytest.mark.parametrize(("gamma", "lam", "bootstrap"), SETTINGS)
@pytest.mark.parametrize(("seed", "interleaved"), BATCHES)
def test_gae(seed, interleaved, gamma, lam, bootstrap):
    batch = random_batch(seed, interleaved=interleaved)
    estimator = GAE(gamma=gamma, lam=lam, whiten=False, bootstrap_truncated=bootstrap)
    found = estimator(batch.sequences, batch.scores)
    rewards = [sequence.rewards for sequence in batch.sequences]
    for episode, chain in batch.chains().items():
        values = batch.read(batch.scores.values, chain)
        expected = naive.gae(
            batch.read(rewards, chain), values, end_of(batch, episode, bootstrap), gamma, lam
        )
        assert_same(batch.read(found.values, chain), expected)
        targets = [a + v for a, v in zip(expected, values, strict=True)]
        assert_same(batch.read(found.returns, chain), targets)


@pytest.mark.parametrize(("gamma", "lam", "bootstrap"), SETTINGS)
@pytest.mark.parametrize(("seed", "interleaved"), BATCHES)
def test_gae_turn(seed, interleaved, gamma, lam, bootstrap):
    batch = random_batch(seed, interleaved=interleaved)
    estimator = TurnGAE(gamma=gamma, lam=lam, whiten=False, bootstrap_truncated=bootstrap)
    found = estimator(batch.sequences, batch.scores)
    for episode, chain in batch.chains().items():
        turns = {}
        for place in chain:
            turn = int(batch.sequences[place.sequence].turns[place.token])
            turns.setdefault(turn, []).append(place)
        rewards = [
            sum(float(batch.sequences[p.sequence].rewards[p.token]) for p in places)
            for places in turns.values()
        ]
        values = [batch.read(batch.scores.values, places[:1])[0] for places in turns.values()]
        end = end_of(batch, episode, bootstrap)
        expected = naive.gae(rewards, values, end, gamma, lam)
        for places, credit, value in zip(turns.values(), expected, values, strict=True):
            assert_same(batch.read(found.values, places), [credit] * len(places))
            assert_same(batch.read(found.returns, places), [credit + value] * len(places))


@pytest.mark.parametrize("estimator", [GAE, TurnGAE])
@pytest.mark.parametrize("seed", range(5))
def test_whitening(estimator, seed):
    batch = random_batch(seed)
    plain = estimator(whiten=False)(batch.sequences, batch.scores)
    white = estimator()(batch.sequences, batch.scores)
    chains = list(batch.chains().values())
    raw = [batch.read(plain.values, chain) for chain in chains]
    expected = naive.normalised(raw, eps=1e-8, less=0)
    for chain, credit in zip(chains, expected, strict=True):
        assert_same(batch.read(white.values, chain), credit)
    for before, after in zip(plain.returns, white.returns, strict=True):
        assert np.array_equal(before, after)
