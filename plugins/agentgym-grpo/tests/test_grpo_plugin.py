import importlib
from importlib.metadata import entry_points

from agentgym_core.on_policy import OnPolicy


def registered():
    (entry,) = [e for e in entry_points(group="agentgym") if e.name == "grpo"]
    names = {}
    plugin = entry.load()
    for hook in (
        plugin.register_algorithms,
        plugin.register_advantage_estimators,
        plugin.register_rewards,
    ):
        hook(register=names.__setitem__)
    return names


def load(target):
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def test_names_lead_to_components():
    names = registered()
    assert set(names) == {"grpo", "group-relative", "gigpo", "soft-overlong"}
    assert issubclass(load(names["grpo"]), OnPolicy)
    for estimator in ("group-relative", "gigpo"):
        assert load(names[estimator])().needs == frozenset()


def test_the_default_advantage_is_registered():
    names = registered()
    assert load(names["grpo"]).default_advantage in names
