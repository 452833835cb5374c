from agentgym_treasure.environment import Treasure
from agentgym_treasure.learning import AgainstPeers, Doubling, Nearness

from agentgym_core.testing import (
    AdvantageEstimatorConformance,
    EnvironmentConformance,
    RewardConformance,
    RoundSchedulerConformance,
)


class TestTreasure(EnvironmentConformance):
    environment = Treasure()


class TestNearness(RewardConformance):
    reward = Nearness()


class TestAgainstPeers(AdvantageEstimatorConformance):
    estimator = AgainstPeers()


class TestDoubling(RoundSchedulerConformance):
    scheduler = Doubling()
