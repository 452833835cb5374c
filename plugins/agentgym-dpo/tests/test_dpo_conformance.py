from agentgym_core.testing import AlgorithmConformance
from agentgym_dpo.dpo import DPO


class TestDPO(AlgorithmConformance):
    algorithm = DPO()


class TestDPOFromFiles(AlgorithmConformance):
    algorithm = DPO(data="pairs.jsonl", beta=0.5, label_smoothing=0.1)
