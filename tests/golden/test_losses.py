import ast
from math import log
from pathlib import Path

import pytest
import torch

from agentgym_core import losses
from agentgym_core.losses import check_kl_estimator, clipped_surrogate, kl_to_reference


def tensor(*values, requires_grad=False):
    return torch.tensor([values], dtype=torch.float64, requires_grad=requires_grad)


def every(logprobs):
    return torch.ones_like(logprobs, dtype=torch.bool)


def surrogate(ratios, advantages, *, low=0.2, high=0.2):
    """Loss, gradient in log pi and metrics at given ratios: old is log 0.5, so pi is ratio / 2."""
    old = torch.full((1, len(ratios)), log(0.5), dtype=torch.float64)
    logprobs = tensor(*(log(ratio * 0.5) for ratio in ratios), requires_grad=True)
    loss, metrics = clipped_surrogate(
        logprobs, old, tensor(*advantages), every(old), low=low, high=high
    )
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    return loss.detach(), gradient, metrics


def test_clipped_surrogate_by_hand():
    #   r    A    r A    clip(r) A   min    loss   d loss / d log pi
    #  1.5   2    3.0       2.4      2.4   -2.4      0    (clipped)
    #  1.5  -1   -1.5      -1.2     -1.5    1.5      1.5  (= -r A)
    #  0.5   1    0.5       0.8      0.5   -0.5     -0.5
    #  0.5  -1   -0.5      -0.8     -0.8    0.8      0    (clipped)
    #  1.0   3    3.0       3.0      3.0   -3.0     -3.0
    loss, gradient, metrics = surrogate([1.5, 1.5, 0.5, 0.5, 1.0], [2.0, -1.0, 1.0, -1.0, 3.0])
    torch.testing.assert_close(loss, tensor(-2.4, 1.5, -0.5, 0.8, -3.0))
    torch.testing.assert_close(gradient, tensor(0.0, 1.5, -0.5, 0.0, -3.0))
    torch.testing.assert_close(metrics["ratio"], tensor(1.5, 1.5, 0.5, 0.5, 1.0))
    assert metrics["clip_fraction"].tolist() == [[1, 0, 0, 1, 0]]
    # k3 of KL(old || pi): r - 1 - log r
    torch.testing.assert_close(metrics["old_kl"][0, 0].item(), 0.5 - log(1.5))


def test_the_two_bounds_are_separate():
    # 1.25 is within 1 + 0.28 and beyond 1 + 0.2; 0.75 is beyond 1 - 0.2 and within 1 - 0.28.
    wide, _, _ = surrogate([1.25, 0.75], [1.0, -1.0], low=0.2, high=0.28)
    torch.testing.assert_close(wide, tensor(-1.25, 0.8))
    narrow, _, _ = surrogate([1.25, 0.75], [1.0, -1.0], low=0.28, high=0.2)
    torch.testing.assert_close(narrow, tensor(-1.2, 0.75))


def test_metrics_have_no_gradient():
    _, _, metrics = surrogate([1.1], [1.0])
    assert not any(value.requires_grad for value in metrics.values())


@pytest.mark.parametrize("padding", [float("-inf"), float("inf"), float("nan"), -1e30])
@pytest.mark.parametrize("field", ["logprobs", "old", "reference", "advantages"])
@pytest.mark.parametrize("estimator", losses.KL_ESTIMATORS)
def test_masked_tokens_are_exactly_zero_whatever_they_hold(padding, field, estimator):
    clean = {"logprobs": [-1.0, -2.0], "old": [-1.1, -2.2], "reference": [-0.9, -2.0]}
    clean |= {"advantages": [0.5, 0.0]}
    fields = {name: list(values) for name, values in clean.items()}
    fields[field][1] = padding
    mask = torch.tensor([[True, False]])

    def terms(fields):
        tensors = {name: tensor(*values) for name, values in fields.items()}
        logprobs = tensors["logprobs"].requires_grad_()
        loss, metrics = clipped_surrogate(
            logprobs, tensors["old"], tensors["advantages"], mask, low=0.2, high=0.2
        )
        kl = kl_to_reference(
            logprobs, tensors["old"], tensors["reference"], mask, estimator=estimator
        )
        (gradient,) = torch.autograd.grad((loss + kl).sum(), logprobs)
        return loss.detach(), kl.detach(), gradient, metrics

    loss, kl, gradient, metrics = terms(fields)
    assert loss[0, 1] == 0
    assert kl[0, 1] == 0
    assert gradient[0, 1] == 0
    assert all(torch.isfinite(value).all() for value in metrics.values())
    for dirty, expected in zip((loss, kl, gradient), terms(clean)[:3], strict=True):
        assert dirty[0, 0] == expected[0, 0] != 0


def test_kl_values_by_hand():
    # pi = 0.4, pi_old = 0.5, reference = 0.8: r = 0.8, d = log 2.
    arguments = [tensor(log(p)) for p in (0.4, 0.5, 0.8)]
    expected = {
        "k2": 0.5 * log(2) ** 2,
        "k3-plain": 2 - 1 - log(2),
        "k3": 0.8 * (2 - 1 - log(2)),
    }
    for estimator, value in expected.items():
        kl = kl_to_reference(*arguments, every(arguments[0]), estimator=estimator)
        assert kl.item() == pytest.approx(value, abs=1e-12)


class TestGradientOfTheKL:
    """A policy of three tokens, where every expectation can be written out.

    KL(pi || ref) = sum pi_j log(pi_j / ref_j); for logits of a softmax its gradient is
    pi_j (log(pi_j / ref_j) - KL).
    """

    logits = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
    reference = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    other = torch.tensor([0.2, 0.6, 0.2], dtype=torch.float64)
    """A policy that is not the current one, to have sampled off-policy."""

    @property
    def policy(self):
        return self.logits.softmax(-1)

    @property
    def gradient(self):
        log_ratio = (self.policy / self.reference).log()
        return self.policy * (log_ratio - (self.policy * log_ratio).sum())

    def sample_gradients(self, estimator, old):
        """Gradient in the logits for each token that could be sampled: row x is token x."""
        rows = []
        for token in range(3):
            logits = self.logits.clone().requires_grad_()
            logprob = logits.log_softmax(-1)[token].reshape(1, 1)
            if estimator == "k1":
                term = logprob - self.reference[token].log()
            else:
                term = kl_to_reference(
                    logprob,
                    old[token].log().reshape(1, 1),
                    self.reference[token].log().reshape(1, 1),
                    torch.tensor([[True]]),
                    estimator=estimator,
                )
            rows.append(torch.autograd.grad(term.sum(), logits)[0])
        return torch.stack(rows)

    def expected(self, estimator, old):
        return old @ self.sample_gradients(estimator, old)

    def test_the_analytic_gradient_is_that_of_autograd(self):
        logits = self.logits.clone().requires_grad_()
        logprobs = logits.log_softmax(-1)
        kl = (logprobs.exp() * (logprobs - self.reference.log())).sum()
        torch.testing.assert_close(torch.autograd.grad(kl, logits)[0], self.gradient)

    @pytest.mark.parametrize("estimator", ["k2", "k3"])
    def test_k2_and_k3_are_right_on_policy(self, estimator):
        torch.testing.assert_close(self.expected(estimator, self.policy), self.gradient)

    def test_k3_is_right_off_policy_too(self):
        torch.testing.assert_close(self.expected("k3", self.other), self.gradient)

    def test_k2_drifts_off_policy(self):
        assert (self.expected("k2", self.other) - self.gradient).abs().max() > 0.1

    def test_k3_plain_has_the_gradient_of_the_reverse_kl(self):
        # KL(ref || pi) = -sum ref_j log pi_j + const; its gradient is pi_j - ref_j.
        expected = self.expected("k3-plain", self.policy)
        torch.testing.assert_close(expected, self.policy - self.reference)
        assert (expected - self.gradient).abs().max() > 0.05

    def test_k1_has_none(self):
        torch.testing.assert_close(self.expected("k1", self.policy), torch.zeros(3).double())

    def test_monte_carlo_agrees(self):
        num_samples = 100_000
        generator = torch.Generator().manual_seed(0)
        tokens = torch.multinomial(self.other, num_samples, replacement=True, generator=generator)
        samples = self.sample_gradients("k3", self.other)[tokens]
        error = samples.std(0) / num_samples**0.5
        assert ((samples.mean(0) - self.gradient).abs() < 4 * error).all()
        # The same samples tell k3-plain apart from the KL's gradient by far.
        plain = self.sample_gradients("k3-plain", self.other)[tokens]
        assert ((plain.mean(0) - self.gradient).abs() > 20 * error).any()


def test_unknown_estimators_are_refused():
    with pytest.raises(ValueError, match=r"'k4'; expected one of k1, k2, k3, k3-plain"):
        check_kl_estimator("k4")


def test_losses_import_nothing():
    tree = ast.parse(Path(losses.__file__).read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
