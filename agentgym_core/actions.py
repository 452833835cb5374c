"""How a reply names an action. An environment picks a format, or brings its own.

A format tells the policy how to reply (`instructions`), reads the action out of a reply (`parse`)
and writes a reply that names a given action (`render`), which is what demonstrations are made of.
"""

import inspect
import re
from typing import Any, Protocol

import attrs

from agentgym_core.errors import FormatError


class ActionFormat(Protocol):
    """`parse(render(action)) == action` for every action that the environment understands."""

    def instructions(self, thought: bool) -> str:
        """Tell the policy how to reply; with `thought`, to reason in words first."""
        ...

    def parse(self, text: str) -> str:
        """Return the one action that the reply names.

        Raises:
            FormatError: it names none, or several; the message is shown to the policy.
        """
        ...

    def render(self, action: str, thought: str = "") -> str:
        """Write a reply that names the action."""
        ...


async def parsed(action_format: ActionFormat, text: str) -> str:
    """What a format reads, also one that lives in another process and is awaited."""
    action: Any = action_format.parse(text)
    return await action if inspect.isawaitable(action) else action


async def rendered(action_format: ActionFormat, action: str) -> str:
    """What a format writes, also one that lives in another process and is awaited."""
    text: Any = action_format.render(action)
    return await text if inspect.isawaitable(text) else text


@attrs.frozen
class ActionLine:
    """`Action: go north`, on a line of its own, after an optional thought.

    The label matches in any case; everything after it up to the line's end is the action. A label
    in the middle of a line does not count, so that a thought may speak of actions.
    """

    label: str = "Action:"

    def instructions(self, thought: bool) -> str:  # noqa: D102
        if thought:
            return (
                "First think in a few words, then act. Reply in exactly this form:\n"
                f"Thought: your reasoning\n{self.label} one action"
            )
        return f"Reply with one line and nothing else:\n{self.label} one action"

    def parse(self, text: str) -> str:  # noqa: D102
        pattern = rf"^[ \t]*{re.escape(self.label)}[ \t]*(.*?)[ \t]*$"
        found = [action for action in re.findall(pattern, text, re.I | re.M) if action]
        if len(found) == 1:
            return found[0]
        problem = "no action" if not found else f"{len(found)} actions"
        raise FormatError(
            f"Your reply named {problem}. Name exactly one, on a line that starts with "
            f"'{self.label}'."
        )

    def render(self, action: str, thought: str = "") -> str:  # noqa: D102
        return f"Thought: {thought}\n{self.label} {action}" if thought else f"{self.label} {action}"


@attrs.frozen
class WholeReply:
    """The reply is the action, nothing around it. For small models and short prompts."""

    instruction: str = "Reply with one action and nothing else."

    def instructions(self, thought: bool) -> str:  # noqa: D102
        del thought  # there is no room for one
        return self.instruction

    def parse(self, text: str) -> str:  # noqa: D102
        action = text.strip()
        if not action or "\n" in action:
            raise FormatError("Your reply must be exactly one action on one line.")
        return action

    def render(self, action: str, thought: str = "") -> str:  # noqa: D102
        del thought
        return action


@attrs.frozen
class ActionTags:
    """`<search>capital of France</search>`: the kind of action is a tag, what is inside says which.

    The action is the tag, in lower case, and what it holds, with single spaces between words. Tags
    match in any case. What stands between `<think>` and `</think>` does not count, nor what follows
    a `<think>` that is never closed or precedes a `</think>` that the prompt opened. A tag that is
    not closed, or holds nothing, is no action; of tags inside each other the innermost is read.

    Example: ActionTags(("search", "answer"))
    """

    tags: tuple[str, ...] = attrs.field(converter=tuple)
    """Names, such as `search`: letters, digits, `-` and `_`."""

    def __attrs_post_init__(self) -> None:
        names = [tag for tag in self.tags if re.fullmatch(r"[a-z][a-z0-9_-]*", tag)]
        if not names or len(set(names)) != len(self.tags) or "think" in names:
            raise ValueError(
                f"`tags` is {list(self.tags)!r}: give names in lower case, such as search and "
                "answer, each once; `think` is taken"
            )

    def instructions(self, thought: bool) -> str:  # noqa: D102
        if thought:
            return (
                "First think in a few words, then act once. Reply in exactly this form:\n"
                f"<think>your reasoning</think>\n{self._forms}"
            )
        return f"Reply in exactly this form, with nothing else:\n{self._forms}"

    def parse(self, text: str) -> str:  # noqa: D102
        said = re.sub(r"<think>(?:(?!</?think>).)*</think>", "\n", text, flags=re.I | re.S)
        said = re.split(r"</think>", said, flags=re.I)[-1]
        said = re.split(r"<think>", said, flags=re.I)[0]
        names = "|".join(map(re.escape, self.tags))
        pattern = rf"<({names})>((?:(?!</?(?:{names})>).)*)</\1>"  # holds no other tag
        found = [
            f"<{tag.lower()}>{' '.join(content.split())}</{tag.lower()}>"
            for tag, content in re.findall(pattern, said, re.A | re.I | re.S)
            if content.strip()
        ]
        if len(found) == 1:
            return found[0]
        problem = "no action" if not found else f"{len(found)} actions"
        raise FormatError(f"Your reply named {problem}. Name exactly one: {self._forms}")

    def render(self, action: str, thought: str = "") -> str:  # noqa: D102
        return f"<think>{thought}</think>\n{action}" if thought else action

    @property
    def _forms(self) -> str:
        return " or ".join(f"<{tag}>…</{tag}>" for tag in self.tags)
