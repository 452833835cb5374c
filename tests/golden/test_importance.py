"""Weights for the gap between engine and trainer, by hand."""

from math import log

import numpy as np
import pytest

from agentgym_core.importance import correction_weights
from agentgym_core.types import TokenSequence


def sequence(mask, sampled, episode=0):
    num = len(mask)
    return TokenSequence(
        token_ids=np.arange(num),
        mask=np.array(mask, bool),
        logprobs=np.array(sampled, float),
        rewards=np.zeros(num),
        turns=np.zeros(num, int),
        versions=np.zeros(num, int),
        episode=episode,
        group=0,
    )


# Engine: 0.5 each. Trainer: 0.6, 0.1, 0.25 and 0.5, of which the second token is not trained.
# Ratios 1.2, -, 0.5, 1 in the first sequence; 3 in the second, where the engine said 0.1.
SEQUENCES = (
    sequence([0, 1, 0, 1, 1], [0, log(0.5), 0, log(0.5), log(0.5)]),
    sequence([0, 1], [0, log(0.1)], episode=1),
)
TRAINER = (
    np.array([-9, log(0.6), log(0.1), log(0.25), log(0.5)]),
    np.array([-9, log(0.3)]),
)


def test_tokens_are_capped_one_by_one():
    weights, metrics = correction_weights(SEQUENCES, TRAINER, "token", 2.0)
    assert weights[0] == pytest.approx([0, 1.2, 0, 0.5, 1.0])
    assert weights[1] == pytest.approx([0, 2.0])
    assert metrics == pytest.approx(
        {"correction_mean": 4.7 / 4, "correction_max": 3.0, "correction_cut": 0.25}
    )


def test_a_sequence_has_the_product_of_its_trained_tokens():
    weights, metrics = correction_weights(SEQUENCES, TRAINER, "sequence", 2.0)
    assert weights[0] == pytest.approx([0, 0.6, 0, 0.6, 0.6])
    assert weights[1] == pytest.approx([0, 2.0])
    assert metrics["correction_max"] == pytest.approx(3.0)


def test_a_mask_drops_what_is_too_far_on_either_side():
    weights, metrics = correction_weights(SEQUENCES, TRAINER, "mask", 1.9)
    assert weights[0] == pytest.approx([0, 1.2, 0, 0, 1.0])
    assert weights[1] == pytest.approx([0, 0])
    assert metrics["correction_cut"] == 0.5


def test_without_a_correction_every_trained_token_counts_as_it_is():
    weights, metrics = correction_weights(SEQUENCES, TRAINER, "none", 2.0)
    assert weights[0].tolist() == [0, 1, 0, 1, 1]
    assert metrics == {}


def test_a_synthetic_offset_is_recovered():
    """The mean of f under the trainer's policy, from samples of the engine's."""
    engine, trainer, f = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]), np.array([1, 5, 2])
    drawn = np.random.default_rng(3).choice(3, size=200_000, p=engine)
    one = sequence([1] * len(drawn), np.log(engine[drawn]))
    weights, _ = correction_weights([one], [np.log(trainer[drawn])], "token", 10.0)
    assert (weights[0] * f[drawn]).mean() == pytest.approx(trainer @ f, abs=0.02)
    assert f[drawn].mean() == pytest.approx(engine @ f, abs=0.02)
    assert abs(trainer @ f - engine @ f) > 0.3


def test_impossible_tokens_do_not_overflow():
    weights, _ = correction_weights([SEQUENCES[1]], [np.array([0, 5000.0])], "token", 2.0)
    assert weights[0].tolist() == [0, 2.0]


def test_a_mask_keeps_its_bounds():
    # Twice and half as likely, with a cap of 2.
    played = sequence([1, 1], [0, 0])
    weights, metrics = correction_weights((played,), (np.array([log(2), -log(2)]),), "mask", 2.0)
    assert weights[0].tolist() == [2.0, 0.5]
    assert metrics["correction_cut"] == 0


def test_a_ratio_ends_at_30_nats():
    _, metrics = correction_weights((sequence([1], [-100.0]),), (np.array([0.0]),), "token", 2.0)
    assert log(metrics["correction_max"]) == pytest.approx(30.0, abs=1e-9)
