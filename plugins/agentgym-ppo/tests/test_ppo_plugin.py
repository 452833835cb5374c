import importlib
from importlib.metadata import entry_points

from agentgym_core.on_policy import OnPolicy


def registered():
    (entry,) = [e for e in entry_points(group="agentgym") if e.name == "ppo"]
    names = {}
    plugin = entry.load()
    for hook in (plugin.register_algorithms, plugin.register_advantage_estimators):
        hook(register=names.__setitem__)
    return names


def load(target):
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def test_names_lead_to_components():
    names = registered()
    assert set(names) == {"ppo", "gae", "gae-turn"}
    assert issubclass(load(names["ppo"]), OnPolicy)
    assert load(names["gae"])().needs == load(names["gae-turn"])().needs == {"values"}


def test_the_default_advantage_is_registered():
    names = registered()
    assert load(names["ppo"]).default_advantage in names
