from agentgym_babyai.environment import BabyAI
from agentgym_core.testing import EnvironmentConformance


class TestBabyAI(EnvironmentConformance):
    environment = BabyAI(num_seeds=2)


class TestHardLevels(EnvironmentConformance):
    environment = BabyAI(
        levels=("MiniBossLevel", "KeyInBox", "PutNextS7N4Carrying"),
        num_seeds=2,
        num_test_seeds=1,
        reward="success",
        prompt="short",
        show_actions=True,
    )
