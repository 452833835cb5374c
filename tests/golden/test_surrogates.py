"""The surrogates beside PPO's: by hand, and against plain loops over random batches."""

from math import exp, inf, log, nan

import numpy as np
import pytest
import torch

from agentgym_core.batching import token_weights
from agentgym_core.losses import (
    clipped_surrogate,
    policy_gradient,
    sequence_surrogate,
    weighted_policy_gradient,
)
from agentgym_core.types import TokenSequence

BOUNDS = {"low": 0.2, "high": 0.2}


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def run(surrogate, ratios, advantages, *, mask=None, old=0.5, **options):
    """Loss, gradient in log pi and metrics for rows of ratios; pi_old is 1/2 at each token."""
    ratios = tensor(*ratios)
    old_logprobs = torch.full_like(ratios, log(old))
    logprobs = (ratios.log() + old_logprobs).requires_grad_()
    mask = torch.ones_like(ratios, dtype=torch.bool) if mask is None else torch.tensor(mask)
    loss, metrics = surrogate(logprobs, old_logprobs, tensor(*advantages), mask, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    assert not any(value.requires_grad for value in metrics.values())
    return loss.detach(), gradient, metrics


def test_policy_gradient_by_hand():
    logprobs = tensor([log(0.5), log(0.25), nan]).requires_grad_()
    loss = policy_gradient(logprobs, tensor([2.0, -1.0, 5.0]), torch.tensor([[True, True, False]]))
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    torch.testing.assert_close(loss.detach(), tensor([2 * log(2), -log(4), 0.0]))
    torch.testing.assert_close(gradient, tensor([-2.0, 1.0, 0.0]))


def test_dual_clip_by_hand():
    #   r    A    min(r A, clip(r) A)   3 A    objective   gradient of the loss
    #  5.0  -1         -5.0             -3       -3          0     (the bound)
    #  2.0  -1         -2.0             -3       -2          2     (= -r A)
    #  0.5  -1         -0.8             -3       -0.8        0     (clipped)
    #  5.0   1          1.2                       1.2        0     (clipped; A > 0 has no bound)
    #  0.5   1          0.5                       0.5       -0.5
    loss, gradient, metrics = run(
        clipped_surrogate,
        [[5.0, 2.0, 0.5, 5.0, 0.5]],
        [[-1.0, -1.0, -1.0, 1.0, 1.0]],
        dual=3.0,
        **BOUNDS,
    )
    torch.testing.assert_close(loss, tensor([3.0, 2.0, 0.8, -1.2, -0.5]))
    torch.testing.assert_close(gradient, tensor([0.0, 2.0, 0.0, 0.0, -0.5]))
    assert metrics["clip_fraction"].tolist() == [[1, 0, 1, 1, 0]]


def test_sequence_ratio_by_hand():
    # Row 0: ratios 2 and 0.72, geometric mean sqrt(1.44) = 1.2 within 1.25: free, s A = 1.2 each.
    # Row 1: ratios 2, 2 and a third that is not trained: s = 2, clipped to 1.25 for A > 0.
    # Row 2: one trained token: s = 0.5 is beyond 0.8, A < 0: clipped to 0.8.
    loss, gradient, metrics = run(
        sequence_surrogate,
        [[2.0, 0.72, 1.0], [2.0, 9.0, 2.0], [0.5, 9.0, 9.0]],
        [[1.0, 1.0, 0.0], [2.0, 0.0, 2.0], [-1.0, 0.0, 0.0]],
        mask=[[True, True, False], [True, False, True], [True, False, False]],
        low=0.2,
        high=0.25,
    )
    expected = tensor([-1.2, -1.2, 0.0], [-2.5, 0.0, -2.5], [0.8, 0.0, 0.0])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        gradient, tensor([-1.2, -1.2, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    )
    torch.testing.assert_close(metrics["ratio"][0, 0].item(), 1.2)
    assert metrics["clip_fraction"][:, 0].tolist() == [0, 1, 1]
    # old_kl is the tokens' own: r - 1 - log r.
    torch.testing.assert_close(metrics["old_kl"][0, 0].item(), 1 - log(2))


def test_sequence_ratio_is_bounded_by_dual_clip_too():
    loss, gradient, _ = run(sequence_surrogate, [[5.0, 5.0]], [[-1.0, -1.0]], dual=3.0, **BOUNDS)
    torch.testing.assert_close(loss, tensor([3.0, 3.0]))
    assert not gradient.any()


def test_an_episode_in_two_sequences_has_two_sequence_ratios():
    """In one context the ratios 2 and 0.72 make 1.2; apart they are 2 and 0.72, both clipped."""
    one, _, _ = run(sequence_surrogate, [[2.0, 0.72]], [[1.0, 1.0]], low=0.2, high=0.25)
    two, _, _ = run(sequence_surrogate, [[2.0], [0.72]], [[1.0], [1.0]], low=0.2, high=0.25)
    torch.testing.assert_close(one, tensor([-1.2, -1.2]))
    torch.testing.assert_close(two, tensor([-1.25], [-0.72]))
    # The share of the episode is the same: its tokens' weights are, whichever row they are in.
    parts = [sequence_of(2, episode=0), sequence_of(1, episode=1), sequence_of(1, episode=1)]
    whole = [sequence_of(2, episode=0), sequence_of(2, episode=1)]
    for aggregation in ("token-mean", "episode-mean"):
        shares = [
            sum(w.sum() for w, s in zip(token_weights(cut, aggregation), cut, strict=True)
                if s.episode == 1)
            for cut in (parts, whole)
        ]  # fmt: skip
        assert shares == [0.5, 0.5]


def sequence_of(num_tokens, *, episode):
    return TokenSequence(
        token_ids=np.zeros(num_tokens, np.int64),
        mask=np.ones(num_tokens, np.bool_),
        logprobs=np.zeros(num_tokens),
        rewards=np.zeros(num_tokens),
        turns=np.zeros(num_tokens, np.int64),
        versions=np.zeros(num_tokens, np.int64),
        episode=episode,
        group=0,
    )


def test_weighted_policy_gradient_by_hand():
    #   r    A   weight   loss = -weight A log(r / 2)   gradient
    #  1.5   2    1.2           -2.4 log 0.75            -2.4    (clipped, and still learned)
    #  0.5  -1    0.8            0.8 log 0.25             0.8    (the same)
    #  1.1   1    1.1           -1.1 log 0.55            -1.1
    loss, gradient, metrics = run(
        weighted_policy_gradient, [[1.5, 0.5, 1.1]], [[2.0, -1.0, 1.0]], **BOUNDS
    )
    expected = tensor([-2.4 * log(0.75), 0.8 * log(0.25), -1.1 * log(0.55)])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, tensor([-2.4, 0.8, -1.1]))
    assert metrics["clip_fraction"].tolist() == [[1, 1, 0]]
    torch.testing.assert_close(metrics["ratio"], tensor([1.5, 0.5, 1.1]))


def test_without_a_lower_bound():
    _, gradient, metrics = run(weighted_policy_gradient, [[0.01]], [[1.0]], low=1.0, high=0.2)
    torch.testing.assert_close(gradient, tensor([-0.01]))
    assert metrics["clip_fraction"].item() == 0


SURROGATES = [clipped_surrogate, sequence_surrogate, weighted_policy_gradient]


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_on_policy_they_are_all_reinforce(surrogate):
    advantages = [[1.0, -2.0, 0.5]]
    _, gradient, metrics = run(surrogate, [[1.0, 1.0, 1.0]], advantages, **BOUNDS)
    torch.testing.assert_close(gradient, -tensor(*advantages))
    assert not metrics["clip_fraction"].any()


@pytest.mark.parametrize("padding", [-inf, inf, nan, -1e30])
@pytest.mark.parametrize("field", ["logprobs", "old", "advantages"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_masked_tokens_change_nothing_whatever_they_hold(surrogate, field, padding):
    mask = torch.tensor([[True, False, True], [False, False, False]])

    def terms(dirty):
        values = {
            "logprobs": tensor([-1.0, -2.0, -0.5], [-1.0, -1.0, -1.0]),
            "old": tensor([-1.1, -2.2, -0.6], [-1.0, -1.0, -1.0]),
            "advantages": tensor([0.5, 0.0, 1.0], [0.0, 0.0, 0.0]),
        }
        if dirty:
            values[field] = values[field].masked_fill(~mask, padding)
        logprobs = values["logprobs"].requires_grad_()
        loss, metrics = surrogate(logprobs, values["old"], values["advantages"], mask, **BOUNDS)
        (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
        assert all(torch.isfinite(value).all() for value in metrics.values())
        return loss.detach(), gradient

    for found, expected in zip(terms(True), terms(False), strict=True):
        assert torch.equal(found, expected)
        assert not found[~mask].any()


class TestAgainstPlainLoops:
    """Random rows of unequal length; the loss written from the papers, token by token."""

    @pytest.fixture
    def batch(self):
        draw = np.random.default_rng(6)
        shape = (5, 9)
        old = torch.tensor(-draw.uniform(0.1, 3.0, shape))
        now = (old + torch.tensor(draw.normal(0.0, 0.4, shape))).requires_grad_()
        mask = torch.tensor(draw.random(shape) < 0.6)
        mask[0, :3] = True
        mask[4] = False
        advantages = torch.tensor(draw.normal(size=(5, 1)) * np.ones(shape)) * mask
        weights = mask.double() / mask.sum(-1, keepdim=True).clamp(min=1) / 4
        return now, old, advantages, mask, weights

    def compare(self, found, plain, now):
        torch.testing.assert_close(found, plain, atol=1e-10, rtol=0)
        (left,) = torch.autograd.grad(found, now, retain_graph=True)
        (right,) = torch.autograd.grad(plain, now)
        assert left.abs().max() > 0
        torch.testing.assert_close(left, right, atol=1e-10, rtol=0)

    @pytest.mark.parametrize("dual", [None, 1.3])
    def test_clipped(self, batch, dual):
        now, old, advantages, mask, weights = batch
        loss, _ = clipped_surrogate(now, old, advantages, mask, low=0.1, high=0.3, dual=dual)
        plain = 0
        for n, t in mask.nonzero().tolist():
            r, a = (now[n, t] - old[n, t]).exp(), advantages[n, t].item()
            term = min(r * a, r.clamp(0.9, 1.3) * a, key=lambda x: x.item())
            if dual is not None and a < 0 and term.item() < dual * a:
                term = 0 * r + dual * a
            plain = plain - weights[n, t] * term
        self.compare((weights * loss).sum(), plain, now)

    @pytest.mark.parametrize("dual", [None, 1.05])
    def test_gspo_itself_where_a_row_has_one_advantage(self, batch, dual):
        """Equation 5: the mean over rows of min(s A, clip(s) A), with the gradient through s."""
        now, old, advantages, mask, weights = batch
        loss, _ = sequence_surrogate(now, old, advantages, mask, low=0.05, high=0.1, dual=dual)
        plain = 0
        for n in range(4):
            places = mask[n].nonzero().flatten().tolist()
            s = (sum(now[n, t] - old[n, t] for t in places) / len(places)).exp()
            a = advantages[n, places[0]].item()
            term = min(s * a, s.clamp(0.95, 1.1) * a, key=lambda x: x.item())
            if dual is not None and a < 0 and term.item() < dual * a:
                term = 0 * s + dual * a
            plain = plain - term / 4
        self.compare((weights * loss).sum(), plain, now)

    def test_gspo_token_where_tokens_have_their_own(self, batch):
        """Equation 13: the ratio s sg(pi_t)^-1 pi_t of each token, with its own advantage."""
        now, old, _, mask, weights = batch
        advantages = torch.tensor(np.random.default_rng(7).normal(size=mask.shape)) * mask
        loss, _ = sequence_surrogate(now, old, advantages, mask, low=0.05, high=0.1)
        plain = 0
        for n in range(4):
            places = mask[n].nonzero().flatten().tolist()
            gaps = [(now[n, t] - old[n, t]).item() for t in places]
            s = exp(sum(gaps) / len(gaps))
            for t in places:
                ratio = s * now[n, t].exp() / now[n, t].exp().item()
                a = advantages[n, t].item()
                term = min(ratio * a, ratio.clamp(0.95, 1.1) * a, key=lambda x: x.item())
                plain = plain - weights[n, t] * term
        self.compare((weights * loss).sum(), plain, now)

    def test_cispo(self, batch):
        now, old, advantages, mask, weights = batch
        loss, _ = weighted_policy_gradient(now, old, advantages, mask, low=0.1, high=0.3)
        plain = 0
        for n, t in mask.nonzero().tolist():
            weight = min(max(exp((now[n, t] - old[n, t]).item()), 0.9), 1.3)
            plain = plain - weights[n, t] * weight * advantages[n, t] * now[n, t]
        self.compare((weights * loss).sum(), plain, now)


def test_the_bound_of_a_dual_clip_is_a_multiple_of_the_advantage():
    # r A = -10 and 3 A = -6, of which the larger is the objective: no gradient is left.
    loss, gradient, _ = run(clipped_surrogate, [[5.0]], [[-2.0]], **BOUNDS, dual=3.0)
    torch.testing.assert_close(loss, tensor([6.0]))
    assert gradient.tolist() == [[0.0]]
