from agentgym_core.testing import AlgorithmConformance
from agentgym_sft.sft import SFT


class TestSFT(AlgorithmConformance):
    algorithm = SFT(num_demonstrations=4)
