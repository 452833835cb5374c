from agentgym_core.testing import AdvantageEstimatorConformance, AlgorithmConformance
from agentgym_rloo.leave_one_out import LeaveOneOut
from agentgym_rloo.rloo import RLOO


class TestRLOO(AlgorithmConformance):
    algorithm = RLOO()


class TestRLOOWithClip(AlgorithmConformance):
    algorithm = RLOO(clip=0.2, num_minibatches=2, num_epochs=2)


class TestRLOOWithReference(AlgorithmConformance):
    algorithm = RLOO(kl_coef=0.1)


class TestLeaveOneOut(AdvantageEstimatorConformance):
    estimator = LeaveOneOut()
