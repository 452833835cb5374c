"""The plain conversation: instructions, then replies and observations in turn."""

from agentgym_core.contract import instructions_of
from agentgym_core.protocols import Environment, Handler, MeteredSession
from agentgym_core.types import Message, Observation


def opening(
    environment: Environment, observation: Observation, *, thought: bool
) -> tuple[Message, ...]:
    """The first messages: what the world is and how to reply, then what there is to see."""
    system = instructions_of(environment, thought=thought)
    return ((Message("system", system),) if system else ()) + observation.messages


async def converse(session: MeteredSession, handler: Handler, *, thought: bool) -> None:
    """Play an episode, one action a reply, until it ends."""
    observation = await session.reset()
    handler.add(opening(session.environment, observation, thought=thought))
    while not session.ended:
        reply = await handler.reply()
        handler.add(await session.act(reply))
