import importlib
import pickle
from importlib.metadata import entry_points

import pytest

from agentgym_scaling_inter.adaptive_rounds import AdaptiveRoundsScheduler
from agentgym_scaling_inter.linear_rounds import LinearRoundsScheduler
from agentgym_scaling_inter.step_rounds import StepRoundsScheduler


def test_registered_by_its_entry_point():
    (entry,) = [e for e in entry_points(group="agentgym") if e.name == "scaling-inter"]
    names = {}
    entry.load().register_round_schedulers(register=names.__setitem__)
    assert set(names) == {"scaling-inter", "scaling-inter-linear", "scaling-inter-adaptive"}
    found = []
    for text in names.values():
        module, _, name = text.partition(":")
        found.append(getattr(importlib.import_module(module), name))
    assert found == [StepRoundsScheduler, LinearRoundsScheduler, AdaptiveRoundsScheduler]


def test_the_horizon_grows_in_stages_and_stays():
    scheduler = StepRoundsScheduler(rounds=(10, 20, 30), steps_per_stage=2)
    horizons = [scheduler.max_rounds(step, scheduler.initial_state()) for step in range(8)]
    assert horizons == [10, 10, 20, 20, 30, 30, 30, 30]


def test_a_list_becomes_a_tuple():
    scheduler = StepRoundsScheduler(rounds=[4, 8], steps_per_stage=1)
    assert scheduler.rounds == (4, 8)
    assert pickle.loads(pickle.dumps(scheduler)) == scheduler


@pytest.mark.parametrize(
    ("rounds", "steps_per_stage", "message"),
    [
        ([], 1, r"rounds is \[\]; expected a horizon of at least 1 action for each stage"),
        ([0, 5], 1, r"rounds is \[0, 5\]; expected a horizon of at least 1"),
        ([20, 10], 1, r"which falls.*\[10, 20\] would do"),
        ([10, 30, 20], 1, r"which falls.*\[10, 20, 30\] would do"),
        ([10], 0, "'steps_per_stage' must be >= 1"),
    ],
)
def test_refused(rounds, steps_per_stage, message):
    with pytest.raises(ValueError, match=message):
        StepRoundsScheduler(rounds=rounds, steps_per_stage=steps_per_stage)
