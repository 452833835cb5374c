"""Act: every reply is an action."""

import attrs

from agentgym_core.agents.context import Context
from agentgym_core.agents.conversation import converse
from agentgym_core.protocols import Agent, Handler, MeteredSession
from agentgym_core.types import Task


@attrs.frozen(kw_only=True)
class Act(Agent):
    """The policy replies with an action and no reasoning."""

    context: Context = "stop"
    """What happens when the context is full: `stop`, `drop`, `summarise`, or a block with more."""

    async def play(self, task: Task, session: MeteredSession, handler: Handler) -> None:
        """See `protocols.Agent`."""
        await converse(session, handler, thought=False, context=self.context)
