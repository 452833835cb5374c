from agentgym_core.testing import AdvantageEstimatorConformance, AlgorithmConformance
from agentgym_grpo.group_relative import GroupRelative
from agentgym_grpo.grpo import GRPO


class TestGRPO(AlgorithmConformance):
    algorithm = GRPO()


class TestGRPOWithReference(AlgorithmConformance):
    algorithm = GRPO(kl_coef=0.1)


class TestGroupRelative(AdvantageEstimatorConformance):
    estimator = GroupRelative()


class TestWithoutScale(AdvantageEstimatorConformance):
    estimator = GroupRelative(scale="none")
