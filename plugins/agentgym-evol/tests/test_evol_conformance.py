from agentgym_core.testing import AlgorithmConformance
from agentgym_evol.evol import Evol
from agentgym_evol.explore import Explore


class TestExplore(AlgorithmConformance):
    algorithm = Explore()


class TestEvol(AlgorithmConformance):
    algorithm = Evol(explored=("explore",), demonstrations=("clone",), original_weight=0.5)
