"""The data of a training step, in the order in which it arises.

Task -> Observation -> Request -> Completion -> Reply -> Turn -> Episode -> Group
     -> TokenSequence -> Scores, Advantages -> Row -> Minibatch -> Batch

Everything is frozen.
"""

from agentgym_core.types.learning import (
    Advantages,
    Batch,
    BoolArray,
    FloatArray,
    IntArray,
    Minibatch,
    Row,
    Scores,
    TokenSequence,
    TokenTensors,
)
from agentgym_core.types.playing import (
    Completion,
    Ending,
    Episode,
    FinishReason,
    Group,
    Reply,
    Request,
    Round,
    Sampling,
    Turn,
)
from agentgym_core.types.worlds import (
    Message,
    Observation,
    Part,
    Role,
    Task,
    to_messages,
    to_parts,
)

__all__ = [
    "Advantages",
    "Batch",
    "BoolArray",
    "Completion",
    "Ending",
    "Episode",
    "FinishReason",
    "FloatArray",
    "Group",
    "IntArray",
    "Message",
    "Minibatch",
    "Observation",
    "Part",
    "Reply",
    "Request",
    "Role",
    "Round",
    "Row",
    "Sampling",
    "Scores",
    "Task",
    "TokenSequence",
    "TokenTensors",
    "Turn",
    "to_messages",
    "to_parts",
]
