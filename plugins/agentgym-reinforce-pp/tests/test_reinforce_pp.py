import importlib
import pickle
from importlib.metadata import entry_points
from math import log

import pytest
import torch

from agentgym_core.on_policy import OnPolicy
from agentgym_core.testing.bandit import Bandit
from agentgym_core.types import TokenTensors
from agentgym_reinforce_pp.normalised import NormalisedBaseline, NormalisedReturns
from agentgym_reinforce_pp.reinforce_pp import ReinforcePP


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
    # r = 1.5, A = 1: min(1.5, 1.28) = 1.28.  r = 0.5, A = -1: min(-0.5, -0.7) = -0.7.
    loss, metrics = ReinforcePP(clip_low=0.3, clip_high=0.28).loss(tensors())
    assert loss[0].tolist() == pytest.approx([-1.28, 0, 0.7], abs=1e-12)
    assert metrics["clip_fraction"][0].tolist() == [1, 0, 1]


def test_a_kl_is_a_cost_in_the_reward_unless_it_is_asked_into_the_loss():
    plain, _ = ReinforcePP().objective(tensors())
    charged, metrics = ReinforcePP(kl_coef=0.1).objective(tensors())
    assert torch.equal(charged, plain)
    assert "kl" not in metrics
    # k2 of the first token, whose reference is twice as likely: (log 2)^2 / 2.
    term, metrics = ReinforcePP(kl_coef=0.1, kl_estimator="k2").objective(tensors())
    assert (term - plain)[0].tolist() == pytest.approx([0.05 * log(2) ** 2, 0, 0], abs=1e-12)
    assert "kl" in metrics


def test_needs_follow_the_fields():
    assert ReinforcePP().needs == {"logprobs"}
    assert ReinforcePP(kl_coef=0.1).needs == {"logprobs", "reference_logprobs"}
    assert ReinforcePP(kl_coef=0.1, kl_target=2.0).initial_state() == {"kl_coef": 0.1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip_low": 0.0}, "'clip_low' must be > 0"),
        ({"clip_low": 1.5}, "'clip_low' must be <= 1"),
        ({"clip_high": 0.0}, "'clip_high' must be > 0"),
        ({"kl_target": 1.0}, "a `kl_coef` above 0"),
        ({"kl_estimator": "k4"}, "expected one of k1, k2, k3, k3-plain"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ReinforcePP(**fields)


@pytest.mark.parametrize(
    "estimator", [NormalisedReturns(), NormalisedReturns(gamma=0.9), NormalisedBaseline()]
)
def test_it_learns_what_is_rewarded(estimator):
    algorithm = ReinforcePP(num_minibatches=2, num_epochs=2)
    assert Bandit(estimator).train(algorithm, 25)[2] > 0.95


def test_a_kl_in_the_reward_holds_it_near_the_reference():
    # No reward differs by as much as it costs to say what the reference never says.
    bandit = Bandit(NormalisedReturns())
    with torch.no_grad():
        bandit.logits += torch.tensor([4.0, 0.0, 0.0, 0.0])
    free = Bandit(NormalisedReturns()).train(ReinforcePP(), 25)
    held = bandit.train(ReinforcePP(kl_coef=20.0), 60)
    assert held.max() < 0.6 < free[2]


def test_plain_data():
    for component in (ReinforcePP(kl_coef=0.1), NormalisedReturns(gamma=0.5), NormalisedBaseline()):
        assert pickle.loads(pickle.dumps(component)) == component


def test_names_lead_to_components():
    (entry,) = [e for e in entry_points(group="agentgym") if e.name == "reinforce-pp"]
    plugin, algorithms, estimators = entry.load(), {}, {}
    plugin.register_algorithms(register=algorithms.__setitem__)
    plugin.register_advantage_estimators(register=estimators.__setitem__)

    def load(target):
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)

    assert set(algorithms) == {"reinforce-pp"}
    assert set(estimators) == {"reinforce-pp", "reinforce-pp-baseline"}
    algorithm = load(algorithms["reinforce-pp"])
    assert issubclass(algorithm, OnPolicy)
    assert algorithm.default_advantage in estimators
    assert not load(estimators["reinforce-pp"]).compares_groups
    assert load(estimators["reinforce-pp-baseline"]).compares_groups
