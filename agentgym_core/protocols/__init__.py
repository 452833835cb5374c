"""What each kind of component must be able to do.

A component is a frozen, keyword-only attrs class whose fields are its keys in the YAML file. It is
plain data: live things come from its methods `open` and `start`. Subclass the protocol to inherit
the default bodies, which is how methods that are added later stay compatible.
"""

from agentgym_core.protocols.learning import (
    AdvantageEstimator,
    Algorithm,
    EpisodeReward,
    Need,
    Reward,
    RoundScheduler,
    State,
    StepReport,
    TaskPool,
    TaskSampler,
)
from agentgym_core.protocols.models import (
    Backend,
    Engine,
    Loss,
    Sampler,
    StartContext,
    Tokenizer,
    Trainer,
    Weights,
)
from agentgym_core.protocols.playing import (
    Agent,
    Environment,
    Handler,
    MeteredSession,
    Opens,
    Said,
    Session,
    Split,
)
from agentgym_core.protocols.tracking import (
    RunInfo,
    Tracker,
    Tracking,
)

__all__ = [
    "AdvantageEstimator",
    "Agent",
    "Algorithm",
    "Backend",
    "Engine",
    "Environment",
    "EpisodeReward",
    "Handler",
    "Loss",
    "MeteredSession",
    "Need",
    "Opens",
    "Reward",
    "RoundScheduler",
    "RunInfo",
    "Said",
    "Sampler",
    "Session",
    "Split",
    "StartContext",
    "State",
    "StepReport",
    "TaskPool",
    "TaskSampler",
    "Tokenizer",
    "Tracker",
    "Tracking",
    "Trainer",
    "Weights",
]
