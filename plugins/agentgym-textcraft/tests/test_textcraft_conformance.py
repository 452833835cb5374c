from agentgym_core.testing import EnvironmentConformance
from agentgym_textcraft.environment import TextCraft


class TestTextCraft(EnvironmentConformance):
    environment = TextCraft(num_goals=40)


class TestShort(EnvironmentConformance):
    environment = TextCraft(num_goals=10, depths=(1, 2), prompt="short", held_out="instances")
