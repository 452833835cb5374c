from agentgym_core.testing import BackendConformance, EngineConformance
from agentgym_torch.backend import TorchBackend
from agentgym_torch.critic import CriticOptions
from agentgym_torch.engine import LocalEngine


class TestLocalEngine(EngineConformance):
    engine = LocalEngine(device="cpu")


class TestTorchBackend(BackendConformance):
    backend = TorchBackend(device="cpu", learning_rate=0.01)
    smaller_micro_batches = TorchBackend(
        device="cpu", learning_rate=0.01, tokens_per_micro_batch=32
    )


class TestSharedCritic(BackendConformance):
    backend = TorchBackend(
        device="cpu", learning_rate=0.01, critic=CriticOptions(shared=True, learning_rate=0.02)
    )
