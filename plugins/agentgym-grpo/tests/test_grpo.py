import pickle

import numpy as np
import pytest
import torch

from agentgym_core.structure import structure
from agentgym_core.testing.bandit import Bandit
from agentgym_core.types import TokenTensors
from agentgym_grpo.gigpo import GiGPO
from agentgym_grpo.group_relative import GroupRelative
from agentgym_grpo.grpo import GRPO


def tensors(**fields):
    """One row of three tokens of which the middle one is masked; ratio 1.5 and 0.5."""
    old = torch.tensor([[0.2, 0.5, 0.4]], dtype=torch.float64).log()
    values = {
        "logprobs_NT": torch.tensor([[0.3, 0.9, 0.2]], dtype=torch.float64).log(),
        "mask_NT": torch.tensor([[True, False, True]]),
        "advantages_NT": torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64),
        "old_logprobs_NT": old,
        "sampled_logprobs_NT": old,
        "reference_logprobs_NT": torch.tensor([[0.6, 0.1, 0.2]], dtype=torch.float64).log(),
    }
    return TokenTensors(**(values | fields))


def test_loss_by_hand():
    # r = 1.5, A = 1: min(1.5, 1.28) = 1.28.  r = 0.5, A = -1: min(-0.5, -0.8) = -0.8.
    loss, metrics = GRPO(clip_high=0.28).loss(tensors(reference_logprobs_NT=None))
    assert loss[0].tolist() == pytest.approx([-1.28, 0, 0.8], abs=1e-12)
    assert metrics["clip_fraction"][0].tolist() == [1, 0, 1]
    assert "kl" not in metrics


def test_each_surrogate_by_hand():
    # r = 1.5 and 0.5 with A = 1 and -1: the row's ratio is sqrt(1.5 x 0.5) = 0.866.
    row = 0.75**0.5
    assert loss_of(surrogate="gspo") == pytest.approx([-row, 0, row], abs=1e-12)
    # Clipped at 0.9: min(0.866, 0.9) and min(-0.866, -0.9).
    assert loss_of(surrogate="gspo", clip_low=0.1) == pytest.approx([-row, 0, 0.9], abs=1e-12)
    # -clip(r) A log pi: weights 1.2 and 0.8, pi = 0.3 and 0.2.
    expected = [-1.2 * np.log(0.3), 0, 0.8 * np.log(0.2)]
    assert loss_of(surrogate="cispo") == pytest.approx(expected, abs=1e-12)


def test_the_bound_for_negative_credit_by_hand():
    # r = 5, A = -1: -5 without, -3 with it.
    unlikely = torch.tensor([[0.02, 0.5, 0.04]], dtype=torch.float64).log()
    given = {"logprobs_NT": unlikely + np.log(5), "old_logprobs_NT": unlikely}
    assert loss_of(**given)[2] == pytest.approx(5, abs=1e-12)
    for surrogate in ("clip", "gspo"):
        bounded = loss_of(dual_clip=3.0, surrogate=surrogate, **given)
        assert bounded[2] == pytest.approx(3, abs=1e-12)
        assert bounded[0] == pytest.approx(-1.2, abs=1e-12)


def loss_of(**fields):
    """The loss of each of the three tokens, without a reference."""
    given = {name: fields.pop(name) for name in list(fields) if name.endswith("_NT")}
    loss, _ = GRPO(**fields).loss(tensors(reference_logprobs_NT=None, **given))
    return loss[0].tolist()


def test_kl_term_by_hand():
    # First token: pi 0.3, reference 0.6, so d = log 2 and k3 = r (2 - 1 - log 2) with r = 1.5.
    # Last token: pi = reference, so no KL.
    kl = 1.5 * (1 - np.log(2))
    loss, metrics = GRPO(kl_coef=0.1).objective(tensors())
    assert loss[0].tolist() == pytest.approx([-1.2 + 0.1 * kl, 0, 0.8], abs=1e-12)
    assert metrics["kl"][0].tolist() == pytest.approx([kl, 0, 0], abs=1e-12)
    assert not metrics["kl"].requires_grad


def test_the_estimator_is_a_choice():
    losses = [
        GRPO(kl_coef=1.0, kl_estimator=estimator).objective(tensors())[1]["kl"][0, 0].item()
        for estimator in ("k2", "k3-plain")
    ]
    assert losses == pytest.approx([np.log(2) ** 2 / 2, 1 - np.log(2)], abs=1e-12)


def test_needs_follow_the_fields():
    assert GRPO().needs == {"logprobs"}
    assert GRPO(kl_coef=0.001).needs == {"logprobs", "reference_logprobs"}
    assert GRPO(old_logprobs="sampled").needs == frozenset()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip_low": 0.0}, "'clip_low' must be > 0"),
        ({"clip_low": 1.5}, "'clip_low' must be <= 1"),
        ({"clip_high": -0.2}, "'clip_high' must be > 0"),
        ({"kl_coef": -1.0}, "'kl_coef' must be >= 0"),
        ({"kl_coef": float("nan")}, "'kl_coef' must be >= 0"),
        ({"kl_target": 1.0, "kl_coef": 0.1}, "needs `kl_estimator: k1`"),
        ({"kl_target": 1.0, "kl_estimator": "k1"}, "a `kl_coef` above 0"),
        ({"reference_every": 5}, "reference_every has no effect with kl_coef: 0"),
        ({"kl_estimator": "k1", "kl_coef": 0.1, "reference_every": 1}, "reference_every is 1"),
        ({"kl_estimator": "k2"}, "kl_estimator has no effect with kl_coef: 0"),
        ({"correction_cap": 3.0}, "correction_cap has no effect with correction: none"),
        ({"correction": "token", "old_logprobs": "sampled"}, "needs `old_logprobs: scored`"),
        ({"aggregation": "constant"}, "needs aggregation_constant"),
        ({"surrogate": "ppo"}, "'surrogate' must be in"),
        ({"overlong": "drop"}, "'overlong' must be in"),
        ({"dual_clip": 1.0}, "'dual_clip' must be > 1.0"),
        ({"dual_clip": 3.0, "surrogate": "cispo"}, "dual_clip has no effect with surrogate"),
        ({"max_refills": -1}, "'max_refills' must be >= 0"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        GRPO(**fields)


def test_k1_is_no_term_of_the_loss():
    """In a loss its expected gradient is 0; it is charged in the reward."""
    loss, metrics = GRPO(kl_coef=0.1, kl_estimator="k1").objective(tensors())
    assert loss[0].tolist() == pytest.approx([-1.2, 0, 0.8], abs=1e-12)
    assert "kl" not in metrics


def test_an_unknown_estimator_in_the_yaml_is_named():
    with pytest.raises(ValueError, match="expected one of k1, k2, k3, k3-plain"):
        structure(GRPO, {"kl_estimator": "k4"}, "algorithm")


def test_plain_data():
    for component in (GRPO(kl_coef=0.1), GroupRelative(scale="none")):
        assert pickle.loads(pickle.dumps(component)) == component


@pytest.mark.parametrize("aggregation", ["token-mean", "episode-mean"])
def test_it_learns_what_is_rewarded(aggregation):
    bandit = Bandit(GroupRelative())
    chance = bandit.train(GRPO(aggregation=aggregation, num_minibatches=2, num_epochs=2), 25)
    assert chance[2] > 0.95
    assert bandit.version == 25


@pytest.mark.parametrize(
    ("algorithm", "estimator"),
    [
        (GRPO(surrogate="gspo", num_minibatches=2), GroupRelative()),
        (GRPO(surrogate="cispo", clip_low=1.0, clip_high=2.0, num_epochs=2), GroupRelative()),
        (GRPO(dual_clip=3.0, num_epochs=2), GroupRelative(scale="none")),
        (GRPO(max_refills=2), GroupRelative()),
        (GRPO(), GiGPO()),
    ],
    ids=["gspo", "cispo", "dual-clip", "refills", "gigpo"],
)
def test_every_option_learns_what_is_rewarded(algorithm, estimator):
    assert Bandit(estimator).train(algorithm, 25)[2] > 0.95


def test_the_kl_term_holds_it_near_the_reference():
    # With a constant reward nothing but the KL moves the policy, back to the uniform reference.
    bandit = Bandit(GroupRelative(eps=1e9), learning_rate=1.0)  # no credit to speak of
    with torch.no_grad():
        bandit.logits += torch.tensor([2.0, 0.0, 0.0, -1.0])
    chance = bandit.train(GRPO(kl_coef=1.0), 40)
    assert np.abs(chance - 0.25).max() < 0.02
