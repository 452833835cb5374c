"""Reflexion: after a failed attempt, words to oneself, and another one (arXiv 2303.11366).

Departures: the policy that reflects is the one that acts, and both are trained; the attempts share
one budget of rounds; it also reflects within an attempt, where it goes in circles.
"""

from collections import Counter

import attrs

from agentgym_core.agents.context import Context, refuse_blank
from agentgym_core.agents.conversation import Conversation, instructions
from agentgym_core.protocols import Agent, Handler, MeteredSession
from agentgym_core.settings import at_least, refuse_idle
from agentgym_core.types import Message, Observation, Task


@attrs.frozen(kw_only=True)
class Reflect(Agent):
    """The policy acts as with `react`; when it failed it writes a reflection, and tries again.

    An attempt has failed where the world ended it without success, be it by a step limit of its
    own. The task then begins anew with the same seed, in a fresh context that holds the
    reflections, and with the rounds that are left. This uses the environment's verdict, which is
    an oracle: `success` is that of the first attempt, `success_best` that of any.

    Reflections cost tokens and no round, and are trained like any other reply. A policy that has
    none to give, which an environment's expert is, does not try again.
    """

    context: Context = "stop"
    """What happens when the context is full: `stop`, `drop`, `summarise`, or a block with more."""
    thought: bool = True
    """Whether the policy reasons in words before each action."""
    attempts: int = attrs.field(default=3, validator=at_least(1))
    """Most attempts in an episode; together they have its `max_rounds`. 1 never tries again."""
    request: str = (
        "You did not succeed. Write down in a few sentences what went wrong, and what you will do "
        "otherwise when you try again from the beginning. Do not act yet."
    )
    """How the policy is asked for a reflection after an attempt."""
    heading: str = "You have tried this before, without success. What you wrote down then:"
    """What stands above the reflections in the next attempt."""
    loop_after: int = attrs.field(default=3, validator=at_least(0))
    """The policy reflects within an attempt when so often one action met one answer; 0 is never."""
    loop_request: str = (
        "You have done the same thing several times, and met the same answer each time. Write down "
        "in a few sentences why it does not help, and what you will do instead. Do not act yet."
    )
    """How it is asked for that."""
    go: str = "Now go on, one action a reply, in the form that you were told."
    """What follows that."""

    def __attrs_post_init__(self) -> None:
        refuse_blank(self, ("request", "loop_request"))
        if self.loop_after == 1:
            raise ValueError("loop_after must be 0, or at least 2: once is no loop")
        if self.attempts == 1:
            refuse_idle(self, ("request", "heading"), "with attempts: 1")
        if not self.loop_after:
            refuse_idle(self, ("loop_request", "go"), "with loop_after: 0")

    async def play(self, task: Task, session: MeteredSession, handler: Handler) -> None:
        """See `protocols.Agent`."""
        del task  # what there is to know of it, the world says
        conversation = Conversation(session, handler, self.context)
        known = instructions(session.environment, thought=self.thought)
        conversation.open(known, await session.reset())
        reflections: list[str] = []
        while True:
            last = await self._attempt(session, conversation)
            tries_again = session.attempt < self.attempts and session.may_try_again
            first = await session.again() if tries_again else None
            await conversation.observe(last)
            if first is None:
                return
            reflection = await conversation.say(self.request)
            if reflection is None:
                return
            reflections.append(reflection.text)
            notes = Message("user", "\n".join([self.heading, *reflections]))
            conversation.restart((*known, notes), first)

    async def _attempt(self, session: MeteredSession, conversation: Conversation) -> Observation:
        """Play until the world, or a limit, ends it; the last observation is not shown yet."""
        met: Counter[tuple[str | None, str]] = Counter()
        while True:
            reply = await conversation.reply()
            observation = await session.act(reply)
            if session.ended:
                return observation
            await conversation.observe(observation)
            pair = session.rounds[-1].action, observation.text
            met[pair] += 1
            if met[pair] == self.loop_after:
                await conversation.say(self.loop_request, then=self.go)
                met.clear()
