from agentgym_core.testing import AdvantageEstimatorConformance, AlgorithmConformance
from agentgym_reinforce_pp.normalised import NormalisedBaseline, NormalisedReturns
from agentgym_reinforce_pp.reinforce_pp import ReinforcePP


class TestReinforcePP(AlgorithmConformance):
    algorithm = ReinforcePP()


class TestReinforcePPWithReference(AlgorithmConformance):
    algorithm = ReinforcePP(kl_coef=0.1)


class TestKLInTheLoss(AlgorithmConformance):
    algorithm = ReinforcePP(kl_coef=0.1, kl_estimator="k2")


class TestNormalisedReturns(AdvantageEstimatorConformance):
    estimator = NormalisedReturns()


class TestDiscounted(AdvantageEstimatorConformance):
    estimator = NormalisedReturns(gamma=0.9)


class TestNormalisedBaseline(AdvantageEstimatorConformance):
    estimator = NormalisedBaseline()
