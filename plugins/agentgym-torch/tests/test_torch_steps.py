import math

import attrs
import numpy as np
import pytest
import torch

from agentgym_torch.backend import TorchBackend


def test_the_first_step_of_adamw_by_hand(training, start_trainer):
    """m/(1-b1) = g and v/(1-b2) = g^2, so the step is lr x g / (|g| + 1e-8): lr x sign(g).

    Decay comes first: w x (1 - lr x decay), for matrices only.
    """
    trainer = start_trainer(learning_rate=0.01, weight_decay=0.5)
    before = {name: tensor.clone() for name, tensor in trainer.weights()}
    found = dict(zip(before, training.gradients(trainer, training.rows(6)), strict=True))
    for name, tensor in trainer.weights():
        decay = 1 - 0.01 * 0.5 if tensor.dim() >= 2 else 1.0
        g = found[name]
        expected = before[name] * decay - 0.01 * g / (g.abs() + 1e-8)
        assert torch.allclose(tensor, expected, atol=1e-6), name
    assert {tensor.dim() for tensor in before.values()} == {1, 2}


def test_one_step_for_each_minibatch_with_averaged_metrics(training, start_trainer):
    one, two = training.rows(4, seed=1), training.rows(6, seed=2)
    trainer = start_trainer(learning_rate=0.01, max_grad_norm=None)
    together = trainer.update(training.batch(one, two), training.loss)
    again = start_trainer(learning_rate=0.01, max_grad_norm=None)
    first = again.update(training.batch(one), training.loss)
    second = again.update(training.batch(two), training.loss)
    training.assert_same_state(training.state(trainer), training.state(again))
    for name in ("loss", "grad_norm"):
        assert together[name] == pytest.approx((first[name] + second[name]) / 2)
    tokens = [sum(int(row.mask.sum()) for row in rows) for rows in (one, two)]
    mean = np.average([first["logprob"], second["logprob"]], weights=tokens)
    assert together["logprob"] == pytest.approx(mean)
    assert together["learning_rate"] == 0.01


def test_clipping_scales_the_gradient_to_the_norm(training, start_trainer):
    rows = training.rows(6)
    free = training.gradients(start_trainer(max_grad_norm=None), rows)
    norm = math.sqrt(sum(float(g.square().sum()) for g in free))
    clipped = training.gradients(start_trainer(max_grad_norm=norm / 4), rows)
    assert training.difference(clipped, [g / 4 for g in free]) < 1e-5


def _bad_loss(tokens):
    return tokens.logprobs_NT / 0.0, {}


def _bad_gradient(tokens):
    """Finite, with an infinite derivative: the square root at 0."""
    zero_NT = tokens.logprobs_NT - tokens.logprobs_NT.detach()
    return zero_NT.sqrt(), {}


@pytest.mark.parametrize(("bad", "message"), [(_bad_loss, "loss"), (_bad_gradient, "gradient")])
@pytest.mark.parametrize("good_before", [0, 1])
def test_what_is_not_finite_leaves_everything_as_it_was(
    training, start_trainer, bad, message, good_before
):
    trainer = start_trainer(learning_rate=0.01)
    rows = training.rows(6)
    for warm in (False, True):  # before the optimizer has a state, and after
        if warm:
            trainer.update(training.batch(rows), training.loss)
        before = training.state(trainer)
        calls = []

        def loss(tokens, calls=calls):
            calls.append(1)
            return (training.loss if len(calls) <= good_before else bad)(tokens)

        with pytest.raises(FloatingPointError, match=message):
            trainer.update(training.batch(*[rows] * (good_before + 1)), loss)
        assert len(calls) == good_before + 1 + len(rows), "each row is tried alone, once"
        training.assert_same_state(before, training.state(trainer))
    twin = start_trainer(learning_rate=0.01)
    twin.update(training.batch(rows), training.loss)
    for each in (trainer, twin):  # no gradient lingers
        each.update(training.batch(rows), training.loss)
    training.assert_same_state(training.state(trainer), training.state(twin))


def test_what_is_not_finite_names_its_tasks(start_trainer, training):
    rows = [attrs.evolve(row, task=f"room_{number}") for number, row in enumerate(training.rows(5))]
    bad = attrs.evolve(rows[2], advantages=np.where(rows[2].mask, np.nan, 0.0))
    trainer = start_trainer(learning_rate=0.01)
    with pytest.raises(FloatingPointError, match=r"the loss is nan: .* It comes from task room_2$"):
        trainer.update(training.batch([*rows[:2], bad, *rows[3:]]), training.loss)


def test_schedules_by_hand():
    """Base rate 8, 2 warm-up steps of 6: p = 0, 1/4, 1/2, 3/4 on steps 2 to 5."""

    def rates(**options):
        backend = TorchBackend(learning_rate=8.0, **options)
        return [backend.learning_rate_at(step, 6) for step in range(6)]

    warm = [8 / 3, 16 / 3]
    assert rates() == [8.0] * 6
    assert rates(warmup_steps=2) == pytest.approx([*warm, 8, 8, 8, 8])
    assert rates(warmup_steps=2, schedule="linear") == pytest.approx([*warm, 8, 6, 4, 2])
    # cos(pi/4) = 0.7071: (1 + 0.7071)/2 x 8 = 6.8284
    cosine = [*warm, 8, 6.82843, 4, 1.17157]
    assert rates(warmup_steps=2, schedule="cosine") == pytest.approx(cosine, rel=1e-5)


def test_the_step_takes_the_rate_of_its_number(training, start_trainer):
    """After any other steps: the rate depends on the step alone."""
    trainer = start_trainer(learning_rate=0.01, schedule="linear")
    for step, rate in ((7, 0.003), (0, 0.01), (5, 0.005)):
        metrics = trainer.update(training.batch(training.rows(2), step=step), training.loss)
        assert metrics["learning_rate"] == pytest.approx(rate)
        assert trainer._learners[0].optimizer.param_groups[0]["lr"] == metrics["learning_rate"]


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"schedule": "cosine", "warmup_steps": 10}, {}, "needs more training steps"),
        ({"schedule": "linear"}, {"num_steps": 0}, "needs more training steps"),
        ({}, {"temperature": 0.0}, "must be above 0 in training"),
    ],
)
def test_a_start_that_cannot_work_is_refused(start_trainer, options, changes, message):
    with pytest.raises(ValueError, match=message):
        start_trainer(changes, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": 0.0},
        {"warmup_steps": -1},
        {"weight_decay": -0.1},
        {"betas": (0.9, 1.0)},
        {"max_grad_norm": 0.0},
        {"tokens_per_micro_batch": 0},
    ],
)
def test_fields_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        TorchBackend(**options)
