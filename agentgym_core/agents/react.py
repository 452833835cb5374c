"""ReAct: every reply is a thought and an action (arXiv 2210.03629)."""

import attrs

from agentgym_core.agents.context import Context
from agentgym_core.agents.conversation import converse
from agentgym_core.protocols import Agent, Handler, MeteredSession
from agentgym_core.types import Task


@attrs.frozen(kw_only=True)
class React(Agent):
    """The policy reasons in words, then names an action in the environment's format."""

    context: Context = "stop"
    """What happens when the context is full: `stop`, `drop`, `summarise`, or a block with more."""

    async def play(self, task: Task, session: MeteredSession, handler: Handler) -> None:
        """See `protocols.Agent`."""
        await converse(session, handler, thought=True, context=self.context)
