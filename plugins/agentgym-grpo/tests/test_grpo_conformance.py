from agentgym_core.testing import (
    AdvantageEstimatorConformance,
    AlgorithmConformance,
    RewardConformance,
)
from agentgym_grpo.gigpo import GiGPO
from agentgym_grpo.group_relative import GroupRelative
from agentgym_grpo.grpo import GRPO
from agentgym_grpo.soft_overlong import SoftOverlong


class TestGRPO(AlgorithmConformance):
    algorithm = GRPO()


class TestGRPOWithReference(AlgorithmConformance):
    algorithm = GRPO(kl_coef=0.1)


class TestDAPO(AlgorithmConformance):
    algorithm = GRPO(clip_high=0.28, dual_clip=3.0, overlong="mask", max_refills=2)


class TestGSPO(AlgorithmConformance):
    algorithm = GRPO(surrogate="gspo", clip_low=3e-4, clip_high=4e-4)


class TestCISPO(AlgorithmConformance):
    algorithm = GRPO(surrogate="cispo", clip_low=1.0, clip_high=2.0)


class TestGroupRelative(AdvantageEstimatorConformance):
    estimator = GroupRelative()


class TestWithoutScale(AdvantageEstimatorConformance):
    estimator = GroupRelative(scale="none")


class TestGiGPO(AdvantageEstimatorConformance):
    estimator = GiGPO()


class TestGiGPOWithoutScale(AdvantageEstimatorConformance):
    estimator = GiGPO(scale="none", step_weight=0.5, gamma=1.0)


class TestSoftOverlong(RewardConformance):
    reward = SoftOverlong(max_tokens=6, margin=4)
