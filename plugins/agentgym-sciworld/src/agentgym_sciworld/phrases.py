"""What the policy is told that the simulator does not say itself."""

from collections.abc import Collection

_OPENING = """\
You are in a simulated house with a garden, a workshop and other rooms, full of things to do \
experiments with. You are given a task from a science lesson. Each turn you take one action and \
are told what happens. Parts of the task earn points; it is done when the last part is. Focusing \
on a wrong thing can fail the task at once.

Actions, where OBJ stands for something that you see or hold:"""

_ACTIONS = (
    ("look around", "describe the room"),
    ("look at OBJ, look in OBJ, read OBJ", "examine something"),
    ("inventory", "list what you hold"),
    ("task", "hear the task again"),
    ("open OBJ, close OBJ", "a door or a container, such as: open door to kitchen"),
    ("go to ROOM", "through an open door into the next room"),
    ("pick up OBJ, put down OBJ", "into and out of your inventory"),
    ("move OBJ to OBJ", "into another container or place"),
    ("pour OBJ in OBJ, dunk OBJ in OBJ", "liquids and what they are in"),
    ("mix OBJ", "react what a container holds"),
    ("activate OBJ, deactivate OBJ", "devices such as a stove or a sink"),
    ("use OBJ on OBJ", "tools, such as: use thermometer in inventory on water"),
    ("connect OBJ to OBJ, disconnect OBJ", "terminals of electrical parts"),
    ("eat OBJ, flush OBJ", ""),
    ("focus on OBJ", "tell that this is the thing the task asks for"),
    ("wait, wait1", "let ten steps pass, or one"),
)
_TELEPORT = ("teleport to ROOM", "be in any room at once")

_CLOSING = """\
Where a name could mean several things, you are shown numbered choices: answer with a number."""

NO_RESET = "The task cannot be reset: go on from here."
NO_MORE_STEPS = "No step is left."


def instructions(simplifications: Collection[str]) -> str:
    """The rules and actions of the world, with these simplifications."""
    actions = list(_ACTIONS)
    if "noElectricalAction" in simplifications:
        actions = [action for action in actions if not action[0].startswith("connect")]
    if {"teleportAction", "easy"} & set(simplifications):
        actions.insert(6, _TELEPORT)
    lines = [f"- {form}: {meaning}" if meaning else f"- {form}" for form, meaning in actions]
    return "\n".join([_OPENING, *lines, _CLOSING])
