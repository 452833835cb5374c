from agentgym_core.testing import EnvironmentConformance
from agentgym_sciworld.environment import SciWorld


class TestSciWorld(EnvironmentConformance):
    environment = SciWorld(task_names=("lifespan-longest-lived", "find-animal"), num_variations=1)
    num_actions = 6


class TestShort(EnvironmentConformance):
    environment = SciWorld(
        task_names=("power-component",), simplifications=("easy",), prompt="short", max_steps=30
    )
    num_tasks = 1
    num_actions = 4
