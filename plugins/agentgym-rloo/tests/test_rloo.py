import importlib
import pickle
from importlib.metadata import entry_points
from math import log

import numpy as np
import pytest
import torch

from agentgym_core.on_policy import OnPolicy
from agentgym_core.testing.bandit import Bandit
from agentgym_core.types import TokenTensors
from agentgym_rloo.leave_one_out import LeaveOneOut
from agentgym_rloo.rloo import RLOO


def tensors(**fields):
    """One row of three tokens of which the middle one is masked; ratio 1.5 and 0.5."""
    old = torch.tensor([[0.2, 0.5, 0.4]], dtype=torch.float64).log()
    values = {
        "logprobs_NT": torch.tensor([[0.3, 0.9, 0.2]], dtype=torch.float64).log(),
        "mask_NT": torch.tensor([[True, False, True]]),
        "advantages_NT": torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64),
        "old_logprobs_NT": old,
        "sampled_logprobs_NT": old,
        "reference_logprobs_NT": torch.tensor([[0.6, 0.1, 0.2]], dtype=torch.float64).log(),
    }
    return TokenTensors(**(values | fields))


def test_reinforce_by_hand():
    # -2 log 0.3 and log 0.2: the ratio does not enter.
    loss, metrics = RLOO().loss(tensors())
    assert loss[0].tolist() == pytest.approx([-2 * log(0.3), 0, log(0.2)], abs=1e-12)
    assert metrics == {}


def test_with_clip_by_hand():
    # r = 1.5, A = 2: min(3, 2.4).  r = 0.5, A = -1: min(-0.5, -0.8).
    loss, metrics = RLOO(clip=0.2).loss(tensors())
    assert loss[0].tolist() == pytest.approx([-2.4, 0, 0.8], abs=1e-12)
    assert metrics["clip_fraction"][0].tolist() == [1, 0, 1]


def test_the_gradient_is_that_of_the_whole_episode_as_one_action():
    """Equal weights make it A grad log pi(episode), the sum over its tokens."""
    draw = np.random.default_rng(0)
    table = torch.tensor(draw.normal(size=(4, 7)), requires_grad=True)
    tokens = torch.tensor(draw.integers(0, 7, size=(4, 5)))
    mask = torch.tensor(draw.random((4, 5)) < 0.7)
    advantages = torch.tensor(draw.normal(size=4))

    def logprobs():
        return table.log_softmax(-1).gather(1, tokens)

    given = {"logprobs_NT": logprobs(), "mask_NT": mask}
    given["advantages_NT"] = advantages[:, None] * mask
    loss, _ = RLOO().loss(tensors(**given))
    (found,) = torch.autograd.grad((loss / 4).sum(), table)
    plain = 0
    for n in range(4):
        episode = sum(logprobs()[n, t] for t in range(5) if mask[n, t])
        plain = plain - advantages[n] * episode / 4
    (expected,) = torch.autograd.grad(plain, table)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def test_a_kl_is_a_cost_in_the_reward_unless_it_is_asked_into_the_loss():
    plain, _ = RLOO().objective(tensors())
    charged, metrics = RLOO(kl_coef=0.1).objective(tensors())
    assert torch.equal(charged, plain)
    assert metrics == {}
    assert RLOO(kl_coef=0.1).needs == {"logprobs", "reference_logprobs"}
    # k2 of the first token, whose reference is twice as likely: (log 2)^2 / 2.
    term, metrics = RLOO(kl_coef=0.1, kl_estimator="k2").objective(tensors())
    assert (term - plain)[0].tolist() == pytest.approx([0.05 * log(2) ** 2, 0, 0], abs=1e-12)
    assert set(metrics) == {"kl"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_minibatches": 2}, r"num_minibatches 2 and num_epochs 1 .* give `clip`"),
        ({"num_epochs": 3}, r"num_minibatches 1 and num_epochs 3 .* give `clip`"),
        ({"clip": 0.0}, "'clip' must be > 0"),
        ({"clip": 1.5}, "'clip' must be <= 1"),
        ({"kl_coef": -1.0}, "'kl_coef' must be >= 0"),
        ({"aggregation": "constant"}, "needs aggregation_constant"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        RLOO(**fields)


@pytest.mark.parametrize(
    "algorithm",
    [
        RLOO(),
        RLOO(aggregation="constant", aggregation_constant=1.0),
        RLOO(clip=0.2, num_minibatches=2, num_epochs=2),
    ],
    ids=["reinforce", "constant", "clip"],
)
def test_it_learns_what_is_rewarded(algorithm):
    assert Bandit(LeaveOneOut()).train(algorithm, 40)[2] > 0.95


def test_a_kl_in_the_reward_holds_it_near_the_reference():
    free = Bandit(LeaveOneOut()).train(RLOO(), 40)
    held = Bandit(LeaveOneOut()).train(RLOO(kl_coef=0.5), 40)
    # The best policy is proportional to exp(reward / 0.5): e^2 / (3 + e^2) = 0.711.
    assert held[2] == pytest.approx(0.711, abs=0.1)
    assert free[2] > held[2] + 0.15


def test_plain_data():
    for component in (RLOO(clip=0.2), LeaveOneOut()):
        assert pickle.loads(pickle.dumps(component)) == component


def test_names_lead_to_components():
    (entry,) = [e for e in entry_points(group="agentgym") if e.name == "rloo"]
    plugin, names = entry.load(), {}
    plugin.register_algorithms(register=names.__setitem__)
    plugin.register_advantage_estimators(register=names.__setitem__)
    assert set(names) == {"rloo", "leave-one-out"}
    loaded = {
        name: getattr(importlib.import_module(target.partition(":")[0]), target.partition(":")[2])
        for name, target in names.items()
    }
    assert issubclass(loaded["rloo"], OnPolicy)
    assert loaded["rloo"].default_advantage in names
    assert loaded["leave-one-out"].compares_groups
