"""What every suite asks of a component, its plugin included, is found where it is missing."""

import sys

import attrs
import pytest

from agentgym_core.protocols import RoundScheduler
from agentgym_core.testing import RoundSchedulerConformance

from .conftest import class_name, outcome


@attrs.frozen(kw_only=True)
class Fixed(RoundScheduler):
    def max_rounds(self, step, state):
        return 5


@attrs.define(kw_only=True)
class CanChange(RoundScheduler):
    rounds: int = 5

    def max_rounds(self, step, state):
        return self.rounds


@attrs.frozen(kw_only=True)
class HoldsSomethingLive(Fixed):
    rule: object = attrs.field(factory=lambda: lambda step: step, init=False, repr=False)


@attrs.frozen(kw_only=True)
class KeepsAFieldFromYaml(Fixed):
    """Built in code with what its file cannot say."""

    rounds: int = attrs.field(default=5, init=False)

    @classmethod
    def of(cls, rounds):
        made = cls()
        object.__setattr__(made, "rounds", rounds)
        return made


@pytest.mark.parametrize(
    ("component", "check"),
    [
        (CanChange(), "test_is_a_frozen_attrs_class"),
        (HoldsSomethingLive(), "test_pickles"),
        (KeepsAFieldFromYaml.of(7), "test_survives_yaml"),
    ],
    ids=class_name,
)
def test_a_planted_fault_is_found(component, check):
    assert outcome(RoundSchedulerConformance, component, check) == ({check}, set())


@pytest.mark.parametrize(
    ("imports", "failed"),
    [
        ("import torch", True),
        ("import no_such_thing_at_all.inside", None),
        ("raise ValueError", True),
        ("", False),
    ],
)
def test_a_plugin_module_that_imports_too_much_is_found(tmp_path, monkeypatch, imports, failed):
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text(imports)
    (tmp_path / "torch.py").touch()  # in place of the real one, which is slow to import
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    component = type("Planted", (Fixed,), {"__module__": "planted.rounds"})()
    check = "test_plugin_module_is_light"
    found = outcome(RoundSchedulerConformance, component, check)
    assert found == ({check} if failed else set(), {check} if failed is None else set())
