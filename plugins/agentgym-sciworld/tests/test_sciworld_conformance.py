from agentgym_core.testing import EnvironmentConformance
from agentgym_sciworld.environment import SciWorld


class TestSciWorld(EnvironmentConformance):
    environment = SciWorld(task_names=("lifespan-longest-lived",), num_variations=1)
    num_actions = 6


class TestShort(EnvironmentConformance):
    environment = SciWorld(
        task_names=("power-component",),
        num_variations=1,
        simplifications=("easy",),
        prompt="short",
        max_steps=30,
    )
    num_actions = 3
