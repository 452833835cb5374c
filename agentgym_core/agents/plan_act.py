"""Plan and act: a plan in words, then actions (after Plan-and-Solve, arXiv 2305.04091).

Departures: the plan is for a world that answers, so it is written anew as the world does.
"""

from collections.abc import Sequence

import attrs

from agentgym_core.agents.context import Context, policy_of, refuse_blank
from agentgym_core.agents.conversation import Conversation, instructions
from agentgym_core.protocols import Agent, Handler, MeteredSession
from agentgym_core.settings import at_least, refuse_idle
from agentgym_core.types import Message, Round, Task


@attrs.frozen(kw_only=True)
class PlanAct(Agent):
    """The policy writes a plan, then replies with one action a time, and now and then plans anew.

    A plan costs tokens and no round, and is trained like any other reply. A policy that has no
    plan to give, which an environment's expert is, is not asked for one: its episodes are those of
    `react`, or of `act` without `thought`.
    """

    context: Context = "stop"
    """What happens when the context is full: `stop`, `drop`, `summarise`, or a block with more."""
    thought: bool = True
    """Whether the policy reasons in words before each action, too."""
    plan_request: str = (
        "Before you act, write down a plan in a few lines: what has to be done, and in which "
        "order. Do not act yet."
    )
    """How the policy is asked for its first plan."""
    go: str = "Now act on your plan, one action a reply, in the form that you were told."
    """What follows each plan."""
    heading: str = "Your plan:"
    """With `context: summarise`: what stands above the plan in the fresh context."""
    revise_every: int = attrs.field(default=0, validator=at_least(0))
    """Turns after which the plan is revised; 0 is never."""
    revise_after_failures: int = attrs.field(default=3, validator=at_least(0))
    """Bad turns in a row after which it is revised; 0 is never. A turn is bad whose reply names no
    action, or an action that met the very same answer before."""
    revise_request: str = (
        "Look at what has happened since you wrote your plan. Write down a new plan in a few "
        "lines, from where you stand now. Do not act yet."
    )
    """How the policy is asked to revise its plan."""

    def __attrs_post_init__(self) -> None:
        refuse_blank(self, ("plan_request", "revise_request"))
        when_full = policy_of(self.context).when_full
        if when_full != "summarise":
            refuse_idle(self, ["heading"], f"with context: {when_full}")
        if not (self.revise_every or self.revise_after_failures):
            refuse_idle(
                self, ["revise_request"], "with revise_every: 0 and revise_after_failures: 0"
            )

    async def play(self, task: Task, session: MeteredSession, handler: Handler) -> None:
        """See `protocols.Agent`."""
        del task  # what there is to know of it, the world says
        conversation = Conversation(session, handler, self.context)
        known = instructions(session.environment, thought=self.thought)
        conversation.open(known, await session.reset())
        await self._plan(conversation, self.plan_request)
        turns = bad = 0
        while not session.ended:
            reply = await conversation.reply()
            await conversation.observe(await session.act(reply))
            turns += 1
            bad = bad + 1 if _is_bad(session.rounds) else 0
            due = turns == self.revise_every or 0 < self.revise_after_failures == bad
            if due and not session.ended:
                await self._plan(conversation, self.revise_request)
                turns = bad = 0

    async def _plan(self, conversation: Conversation, request: str) -> None:
        plan = await conversation.say(request, then=self.go)
        if plan is not None:
            conversation.notes = (Message("user", f"{self.heading}\n{plan.text}"),)


def _is_bad(rounds: Sequence[Round]) -> bool:
    last = rounds[-1]
    met = {(past.action, past.observation.text) for past in rounds[:-1]}
    return last.format_error or (last.action, last.observation.text) in met
