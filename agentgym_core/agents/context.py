"""What an agent does when the context is full."""

from collections.abc import Iterable
from typing import Any, Literal

import attrs

from agentgym_core.settings import refuse_idle

WhenFull = Literal["stop", "drop", "summarise"]


def _is_share(_: Any, field: "attrs.Attribute[float]", value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{field.name} is a share from 0 to 1, got {value:g}")


def refuse_blank(component: object, keys: Iterable[str]) -> None:
    """Refuse texts without a word.

    Raises:
        ValueError: one of them is blank; the message names it.
    """
    for key in keys:
        if not getattr(component, key).strip():
            raise ValueError(f"{key} must not be empty: say what the policy shall read")


@attrs.frozen(kw_only=True)
class ContextPolicy:
    """The `context` block of an agent.

    The context is full where the next reply might not fit into it at its longest
    (`limits.max_tokens`), or, to summarise, where a summary might not fit after that reply.
    """

    when_full: WhenFull = "stop"
    """`stop` plays on until a reply does not fit, and ends the episode: OUT_OF_TOKENS. `drop` puts
    a note in place of the oldest observations; the first one and the latest stay. `summarise` lets
    the policy write a summary in place of all but the instructions, the first observation and the
    latest. Where even so the next reply does not fit, the episode ends as with `stop`."""
    keep: float = attrs.field(default=0.5, validator=_is_share)
    """With `drop`: share of the observations that stays, less if the rest would not fit. 1 drops as
    few as it can, but then almost every turn begins a fresh context, to be computed anew."""
    note: str = "(What you saw here was left out to save space.)"
    """With `drop`: what stands in place of an observation. One that is not longer stays."""
    request: str = (
        "There is not much space left. Write down in a few sentences what you have done, what you "
        "have found out and what is left to do. You will go on from these sentences alone. Do not "
        "act now."
    )
    """With `summarise`: how the policy is asked for its summary."""
    heading: str = "What happened until now, in your own words:"
    """With `summarise`: what stands above the summary in the fresh context."""

    def __attrs_post_init__(self) -> None:
        why = f"with when_full: {self.when_full}"
        if self.when_full != "drop":
            refuse_idle(self, ("keep", "note"), why)
        if self.when_full != "summarise":
            refuse_idle(self, ("request", "heading"), why)
        refuse_blank(self, ("note", "request"))


Context = WhenFull | ContextPolicy
"""A name alone is short for a block: `context: drop` is `context: {when_full: drop}`."""


def policy_of(context: Context) -> ContextPolicy:
    """The block that a name stands for."""
    return context if isinstance(context, ContextPolicy) else ContextPolicy(when_full=context)
