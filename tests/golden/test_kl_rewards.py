"""The KL as a reward, and its adaptive coefficient, by hand."""

from math import log

import numpy as np
import pytest

from agentgym_core.kl_rewards import kl_to_rewards, next_coefficient
from agentgym_core.types import TokenSequence


def sequence(mask, rewards, episode):
    num = len(mask)
    return TokenSequence(
        token_ids=np.arange(num),
        mask=np.array(mask, bool),
        logprobs=np.zeros(num),
        rewards=np.array(rewards, float),
        turns=np.zeros(num, int),
        versions=np.zeros(num, int),
        episode=episode,
        group=0,
    )


def test_each_trained_token_is_charged():
    # log ratios to the reference: log 2 and -log 4 on trained tokens, 7 on one that is not.
    sequences = (
        sequence([0, 1, 0, 1], [0, 0, 0, 1], 0),
        sequence([0, 1], [0, 0.5], 0),
        sequence([0, 1], [0, 0], 1),
    )
    own = (np.array([0, log(0.5), 7, log(0.1)]), np.array([0, -1.0]), np.array([0, -2.0]))
    reference = (np.array([0, log(0.25), 0, log(0.4)]), np.array([0, -1.5]), np.array([0, -2.0]))
    charged, metrics = kl_to_rewards(sequences, own, reference, 0.1)
    assert charged[0].rewards == pytest.approx([0, -0.1 * log(2), 0, 1 + 0.1 * log(4)])
    assert charged[1].rewards == pytest.approx([0, 0.45])
    assert charged[2].rewards.tolist() == [0, 0]
    total = log(2) - log(4) + 0.5
    assert metrics == pytest.approx({"kl": total / 4, "kl_episode": total / 2, "kl_coef": 0.1})
    assert sequences[0].rewards.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (6.0, 0.2),  # on target
        (6.6, 0.2 * 1.01),  # 10 % above: error 0.1, gain 0.1
        (60.0, 0.2 * 1.02),  # the error counts as 0.2 at most
        (0.0, 0.2 * 0.98),
        (-6.0, 0.2 * 0.98),
    ],
)
def test_the_coefficient_follows_the_error(kl, expected):
    assert next_coefficient(0.2, kl, 6.0) == pytest.approx(expected)


def test_one_token_of_one_episode_is_its_own_mean():
    charged, metrics = kl_to_rewards(
        (sequence([0, 1], [0, 1], 0),), (np.array([0, -1.0]),), (np.array([0, -1.5]),), 0.2
    )
    assert charged[0].rewards == pytest.approx([0, 0.9])
    assert metrics == pytest.approx({"kl": 0.5, "kl_episode": 0.5, "kl_coef": 0.2})


def test_nothing_costs_nothing():
    assert kl_to_rewards((), (), (), 0.2) == ((), {"kl": 0.0, "kl_episode": 0.0, "kl_coef": 0.2})
