"""What tests of components need: conformance suites, a scripted engine, small worlds, tokenizers.

from agentgym_core.testing import EnvironmentConformance

class TestGuessNumber(EnvironmentConformance):
environment = GuessNumber(high=10)
"""

from agentgym_core.testing.conformance.advantage import AdvantageEstimatorConformance
from agentgym_core.testing.conformance.agent import AgentConformance
from agentgym_core.testing.conformance.algorithm import AlgorithmConformance
from agentgym_core.testing.conformance.backend import BackendConformance
from agentgym_core.testing.conformance.engine import EngineConformance
from agentgym_core.testing.conformance.environment import EnvironmentConformance
from agentgym_core.testing.conformance.reward import RewardConformance
from agentgym_core.testing.conformance.rounds import RoundSchedulerConformance
from agentgym_core.testing.conformance.task_sampler import TaskSamplerConformance

__all__ = [
    "AdvantageEstimatorConformance",
    "AgentConformance",
    "AlgorithmConformance",
    "BackendConformance",
    "EngineConformance",
    "EnvironmentConformance",
    "RewardConformance",
    "RoundSchedulerConformance",
    "TaskSamplerConformance",
]
