from agentgym_core.testing import AdvantageEstimatorConformance, AlgorithmConformance
from agentgym_ppo.gae import GAE
from agentgym_ppo.gae_turn import TurnGAE
from agentgym_ppo.ppo import PPO


class TestPPO(AlgorithmConformance):
    algorithm = PPO()


class TestPPOWithReference(AlgorithmConformance):
    algorithm = PPO(kl_coef=0.1, value_clip=None, critic_warmup=2)


class TestGAE(AdvantageEstimatorConformance):
    estimator = GAE(gamma=0.99, lam=0.95)


class TestGAEUnwhitened(AdvantageEstimatorConformance):
    estimator = GAE(whiten=False)


class TestTurnGAE(AdvantageEstimatorConformance):
    estimator = TurnGAE()


class TestTurnGAEUnwhitened(AdvantageEstimatorConformance):
    estimator = TurnGAE(whiten=False, gamma=1.0)
