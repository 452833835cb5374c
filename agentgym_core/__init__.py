"""AgentGym: train language-model agents with multi-turn reinforcement learning.

The core knows no environment, no algorithm and no engine. Plugins bring them; a YAML file
composes them.
"""

from agentgym_core.hookspecs import hookimpl

__all__ = ["hookimpl"]
