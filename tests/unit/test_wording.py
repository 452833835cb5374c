"""Whose a component is."""

import pytest

from agentgym_core.agents.react import React
from agentgym_core.wording import origin
from agentgym_textcraft.environment import TextCraft


class Homemade:
    pass


def test_a_component_of_the_core():
    assert origin(React()).startswith("React (package agentgym-core 0.")


def test_a_component_of_a_plugin_and_its_class():
    assert origin(TextCraft).startswith("TextCraft (package agentgym-textcraft ")
    assert origin(TextCraft()) == origin(TextCraft)


def test_a_class_of_an_installed_package_that_is_no_plugin():
    assert origin(pytest.MonkeyPatch()).startswith("MonkeyPatch (package pytest ")


def test_a_class_of_no_package():
    assert origin(Homemade()) == f"Homemade (module {__name__})"
