"""The critic's loss: by hand, and against one written from the paper alone."""

import numpy as np
import pytest
import torch

from agentgym_core.losses import clipped_value_loss


def tensor(*values, requires_grad=False):
    return torch.tensor([values], dtype=torch.float64, requires_grad=requires_grad)


def loss_of(values, old, returns, mask=None, *, clip=0.5):
    """Loss, gradient in V and metrics."""
    values = tensor(*values, requires_grad=True)
    mask = torch.ones(values.shape, dtype=torch.bool) if mask is None else torch.tensor([mask])
    loss, metrics = clipped_value_loss(values, tensor(*old), tensor(*returns), mask, clip=clip)
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    return loss.detach(), gradient, metrics


def test_by_hand():
    #  V   V_old   R   clip(V)   (V-R)^2   (clip-R)^2   loss    gradient
    #  1.25  1     3     1.25      3.0625    3.0625     1.53125  -1.75    near: as without
    #  2     1     3     1.5       1         2.25       1.125     0       towards R, too far
    #  0     1     3     0.5       9         6.25       4.5      -3       away from R: never held
    #  4     1     2     1.5       4         0.25       2         2       past R: never held
    loss, gradient, metrics = loss_of([1.25, 2, 0, 4], [1, 1, 1, 1], [3, 3, 3, 2])
    assert loss.tolist() == [[1.53125, 1.125, 4.5, 2]]
    assert gradient.tolist() == [[-1.75, 0, -3, 2]]
    assert metrics["value_clip_fraction"].tolist() == [[0, 1, 0, 0]]
    assert metrics["value_loss"].tolist() == loss.tolist()
    assert not any(value.requires_grad for value in metrics.values())


def test_without_a_clip_it_is_half_the_squared_error():
    loss, gradient, metrics = loss_of([1.25, 2, 0, 4], [1, 1, 1, 1], [3, 3, 3, 2], clip=None)
    assert loss.tolist() == [[1.53125, 0.5, 4.5, 2]]
    assert gradient.tolist() == [[-1.75, -1, -3, 2]]
    assert not metrics["value_clip_fraction"].any()


@pytest.mark.parametrize("padding", [float("inf"), float("-inf"), float("nan"), 1e30])
@pytest.mark.parametrize("field", [0, 1, 2])
@pytest.mark.parametrize("clip", [0.5, None])
def test_masked_tokens_are_exactly_zero_whatever_they_hold(padding, field, clip):
    clean = [[2.0, 7.0], [1.0, 7.0], [3.0, 7.0]]
    loud = [list(row) for row in clean]
    loud[field][1] = padding
    expected, found = (loss_of(*rows, [True, False], clip=clip) for rows in (clean, loud))
    for left, right in zip(expected[:2], found[:2], strict=True):
        assert left.tolist() == right.tolist()
        assert left[0, 1] == 0
    for name, value in expected[2].items():
        assert value.tolist() == found[2][name].tolist()


@pytest.mark.parametrize("clip", [0.2, 1.0, None])
def test_random_batches_equal_one_written_from_the_paper(clip):
    """L = max((V - R)^2, (V_clip - R)^2) / 2, in plain numbers; its gradient by differences."""
    draw = np.random.default_rng(0)
    values, old, returns = draw.normal(size=(3, 400))

    def plain(v, o, r):
        near = v if clip is None else min(max(v, o - clip), o + clip)
        return max((v - r) ** 2, (near - r) ** 2) / 2

    loss, gradient, _ = loss_of(values, old, returns, clip=clip)
    for i, (v, o, r) in enumerate(zip(values, old, returns, strict=True)):
        assert loss[0, i].item() == pytest.approx(plain(v, o, r), abs=1e-12)
        slope = (plain(v + 1e-6, o, r) - plain(v - 1e-6, o, r)) / 2e-6
        assert gradient[0, i].item() == pytest.approx(slope, abs=1e-5)
