"""DPO on one pair by hand: beta 1/2, and a margin of ln 3, whose sigmoid is 3/4."""

from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentgym_core.types import Scores, TokenSequence, TokenTensors
from agentgym_dpo.dpo import DPO
from agentgym_dpo.pairs import Preferences

FAR = 1e3
"""What the world's tokens hold: nothing may depend on it."""
LN3 = log(3)


def sequence(mask, episode):
    zeros = np.zeros(len(mask))
    return TokenSequence(
        token_ids=np.arange(len(mask)),
        mask=np.array(mask, np.bool_),
        logprobs=zeros,
        rewards=zeros,
        turns=zeros.astype(np.int64),
        versions=zeros.astype(np.int64),
        episode=episode,
        group=0,
    )


# The chosen one said three tokens in two turns, and one more in a second context; the rejected two.
SEQUENCES = (
    sequence([0, 1, 1, 0, 1], episode=0),
    sequence([0, 1], episode=0),
    sequence([0, 1, 1], episode=1),
)
REFERENCE = ([0, -1, -1, 0, -1], [0, -1], [0, -1, -1])
MOVED = ([FAR, 0.5 * LN3, 0.5 * LN3, -FAR, LN3], [FAR, -0.5 * LN3], [0, -LN3, 0.5 * LN3])
"""By how much the policy's log-probabilities lie above. Said by the chosen: 1.5 ln 3; by the
rejected: -0.5 ln 3. Half the difference is the margin."""


class Run:
    """A trainer that scores what is given, and keeps the gradient by each log-probability."""

    def __init__(self, moved):
        self.trainer = self
        reference = tuple(np.array(line, np.float64) for line in REFERENCE)
        own = tuple(ref + np.array(line) for ref, line in zip(reference, moved, strict=True))
        self.scores = Scores(logprobs=own, reference_logprobs=reference)

    def score(self, sequences, needs):
        return self.scores

    def beating(self, loss):
        return loss

    def update(self, batch, loss):
        (minibatch,) = batch.minibatches
        own = [torch.tensor(row.old_logprobs, requires_grad=True) for row in minibatch.rows]
        total = 0.0
        for row, logprobs in zip(minibatch.rows, own, strict=True):
            same = dict.fromkeys(["old_logprobs_NT", "sampled_logprobs_NT"], logprobs[None])
            loss_NT, _ = loss(
                TokenTensors(
                    logprobs_NT=logprobs[None],
                    mask_NT=torch.tensor(row.mask)[None],
                    advantages_NT=torch.tensor(row.advantages)[None],
                    **same,
                )
            )
            total = total + (loss_NT * torch.tensor(row.weights)).sum()
        self.gradients = [line.tolist() for line in torch.autograd.grad(total, own)]
        return {}


def learned(moved, pairs=((0, 1),), **fields):
    run = Run(moved)
    preferences = Preferences(sequences=SEQUENCES, pairs=pairs)
    _, metrics = DPO(beta=0.5, **fields).learn(run, 0, preferences)
    return SimpleNamespace(**metrics), run.gradients


def test_a_trajectory_is_what_the_policy_said_in_all_turns_and_contexts():
    found, _ = learned(MOVED)
    assert found.chosen_reward == pytest.approx(0.75 * LN3)
    assert found.rejected_reward == pytest.approx(-0.25 * LN3)
    assert found.preference_margin == pytest.approx(LN3)
    assert found.preference_accuracy == 1.0


@pytest.mark.parametrize(
    ("smoothing", "loss", "slope"),
    [
        (0.0, log(4 / 3), 1 / 4),
        # 0.9 ln 4/3 + 0.1 ln 4; 0.9 x 1/4 - 0.1 x 3/4
        (0.1, 0.9 * log(4 / 3) + 0.1 * log(4), 0.15),
    ],
)
def test_loss_and_gradient(smoothing, loss, slope):
    """Every token of a side has the same gradient: half the slope, for beta is a half."""
    found, gradients = learned(MOVED, label_smoothing=smoothing)
    assert found.loss == pytest.approx(loss)
    up, down = -slope / 2, slope / 2
    assert gradients[0] == pytest.approx([0, up, up, 0, up])
    assert gradients[1] == pytest.approx([0, up])
    assert gradients[2] == pytest.approx([0, down, down])


def test_the_wrong_way_round():
    """A margin of -ln 3, whose sigmoid is 1/4: loss ln 4, slope 3/4."""
    found, gradients = learned(MOVED, pairs=((1, 0),))
    assert (found.loss, found.preference_accuracy) == (pytest.approx(log(4)), 0.0)
    assert gradients[1] == pytest.approx([0, 3 / 8])
    assert gradients[2] == pytest.approx([0, -3 / 8, -3 / 8])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_ln_2_where_the_policy_is_the_reference(smoothing):
    """Whatever the smoothing; the slope is 1/2 - s."""
    still = [np.zeros(len(line)) for line in REFERENCE]
    found, gradients = learned(still, label_smoothing=smoothing)
    assert found.loss == pytest.approx(log(2), abs=1e-12)
    assert found.preference_margin == found.preference_accuracy == 0.0
    assert gradients[1] == pytest.approx([0, -(0.5 - smoothing) / 2])
