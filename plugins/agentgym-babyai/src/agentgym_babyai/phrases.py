"""Everything the world says, in a long form for language models and a short one for tiny models."""

import re
from collections.abc import Iterable, Sequence

import attrs

from agentgym_babyai.view import HERE, Place, Thing, View, in_front

INSTRUCTIONS = """\
You are in a world of rooms and have a mission. There are doors, and balls, boxes and keys, of \
which you can carry one. You see six steps ahead and three to each side, nothing behind you and \
nothing through walls and closed doors. A thing at "2 ahead, 1 left" is two steps ahead of you and \
one to the left. Things of one kind and colour are numbered anew each turn, the nearest first.

Each turn you take one action:
- go to COLOR THING N: walk to a thing in view and face it, as in go to red ball 1
- pick up COLOR THING N: walk to it and take it
- drop: put what you carry on the empty floor right before you
- toggle: open or close the door right before you, or open the box, which leaves what was in it
- go through COLOR door N: walk through an open door
- toggle and go through COLOR door N: the same for a closed door, or for a locked one if you carry \
a key of its colour
- turn left, turn right, move forward: one turn or step
- check available actions: list what can be done now

To put a thing next to another, drop it on a place beside that. If you see nothing of use, turn or \
go elsewhere."""

_PLACE_HOLDER = re.compile(r"\{\w+\}")

COLORS = ("blue", "green", "grey", "purple", "red", "yellow")
KINDS = ("ball", "box", "key", "door")
MISSION_WORDS = (
    "go to pick up open put next to the a an object in front of you behind you on your left on "
    "your right and , then after you"
)
"""Every word of a mission, but colours and kinds."""
ACTION_WORDS = (
    "go to pick up pickup drop toggle and go through turn left turn right move forward check "
    "available actions"
)


@attrs.frozen(kw_only=True)
class Phrases:
    """One form of speech: a template for every answer."""

    opening: str
    answer: str
    see: str
    nothing: str
    thing: str
    between: str
    state: str
    here: str
    ahead: str
    left: str
    right: str
    beside: str
    space: str
    wall: str
    unseen: str
    carry: str
    empty_handed: str
    actions: str
    went: str
    was_there: str
    picked_up: str
    dropped: str
    opened: str
    unlocked: str
    closed: str
    opened_box: str
    opened_empty_box: str
    went_through: str
    in_doorway: str
    turned_left: str
    turned_right: str
    moved: str
    accomplished: str
    failed: str
    time_up: str
    not_an_action: str
    several_actions: str
    no_thing: str
    not_seen: str
    which: str
    no_way: str
    not_a_door: str
    not_open: str
    locked: str
    cannot_carry: str
    hands_full: str
    hands_empty: str
    no_room: str
    nothing_to_toggle: str
    cannot_toggle: str
    blocked: str

    def templates(self) -> Iterable[str]:
        """Every template, its place holders left out."""
        for template in attrs.astuple(self):
            yield _PLACE_HOLDER.sub(" ", template)

    def describe(self, view: View) -> str:
        """What the player sees and carries."""
        things = self.between.join(map(self._thing, view.things))
        carry = self.carry.format(thing=view.carried) if view.carried else self.empty_handed
        space = self.space.format(
            ahead=self._space(view, (1, 0)),
            left=self._space(view, (0, -1)),
            right=self._space(view, (0, 1)),
        )
        return "\n".join((self.see.format(things=things) if things else self.nothing, space, carry))

    def list_actions(self, actions: Sequence[str]) -> str:
        """What can be done now."""
        return self.actions.format(actions=", ".join(actions))

    def _thing(self, thing: Thing) -> str:
        ahead, right = thing.place
        parts: list[str] = []
        if ahead:
            parts.append(self.ahead.format(steps=ahead))
        if right:
            side = self.left if right < 0 else self.right
            parts.append(side.format(steps=abs(right)))
        place = self.beside.join(parts)
        if thing.place == in_front(HERE):
            place = self.here
        state = self.state.format(state=thing.state) if thing.state else ""
        return self.thing.format(thing=thing.label, state=state, place=place)

    def _space(self, view: View, side: Place) -> str:
        steps = view.free_steps(side)
        end = ((steps + 1) * side[0], (steps + 1) * side[1])
        if end in view.walls:
            return self.wall.format(steps=steps)
        thing = view.by_place.get(end)
        return self.unseen.format(steps=steps) if thing is None else f"{steps}"


LONG = Phrases(
    opening="Your mission: {mission}.\n\n{view}",
    answer="{done}\n\n{view}",
    see="You see:\n{things}",
    nothing="You see no thing and no door.",
    thing="- {thing}{state}: {place}",
    between="\n",
    state=", {state}",
    here="right before you",
    ahead="{steps} ahead",
    left="{steps} left",
    right="{steps} right",
    beside=", ",
    space="Free steps: ahead {ahead}, left {left}, right {right}.",
    wall="{steps} (wall)",
    unseen="{steps}+",
    carry="You carry a {thing}.",
    empty_handed="You carry nothing.",
    actions="You can: {actions}.",
    went="You went to the {thing}.",
    was_there="You are at the {thing} already.",
    picked_up="You picked up the {thing}.",
    dropped="You dropped the {thing}.",
    opened="You opened the {thing}.",
    unlocked="You unlocked and opened the {thing}.",
    closed="You closed the {thing}.",
    opened_box="You opened the {thing}. It is gone, and what was in it stands there: a {content}.",
    opened_empty_box="You opened the {thing}. It was empty and is gone.",
    went_through="You went through the {thing}.",
    in_doorway="You stand in the {thing}. Something behind it is in your way.",
    turned_left="You turned left.",
    turned_right="You turned right.",
    moved="You moved forward.",
    accomplished="The mission is accomplished.",
    failed="The mission has failed.",
    time_up="Your time is up: the mission is not accomplished.",
    not_an_action=(
        "That is no action. Write one of: go to COLOR THING N, pick up COLOR THING N, drop, "
        "toggle, go through COLOR door N, toggle and go through COLOR door N, turn left, "
        "turn right, move forward, check available actions."
    ),
    several_actions="That was more than one action. Take one at a time; nothing was done.",
    no_thing="Name a thing by its colour and kind, as in `red ball 1`.",
    not_seen="You see no {thing}.",
    which="You see {count} things called {thing}: say which, as in `{thing} 1`.",
    no_way="You see no free way to the {thing}.",
    not_a_door="One goes through doors, and the {thing} is none.",
    not_open=(
        "The {thing} is {state}. Open it first, with `toggle and go through {label}`, or with "
        "`toggle` right before it."
    ),
    locked="The {thing} is locked. Carry a {color} key to open it.",
    cannot_carry="A door cannot be picked up.",
    hands_full="You carry a {thing}. Drop it first.",
    hands_empty="You carry nothing that you could drop.",
    no_room="You can only drop something on the free floor right before you. There is no room.",
    nothing_to_toggle="There is nothing right before you to toggle. Go to a door or a box first.",
    cannot_toggle="The {thing} cannot be toggled. Doors and boxes can.",
    blocked="You cannot move forward: {what} is in the way.",
)

SHORT = Phrases(
    opening="mission {mission}\n{view}",
    answer="{view}",
    see="{things}",
    nothing="no thing",
    thing="{thing}{state} {place}",
    between="\n",
    state=" {state}",
    here="here",
    ahead="{steps} ahead",
    left="{steps} left",
    right="{steps} right",
    beside=" ",
    space="ahead {ahead} left {left} right {right}",
    wall="{steps} wall",
    unseen="{steps}",
    carry="carry {thing}",
    empty_handed="carry nothing",
    actions="can {actions}",
    went="",
    was_there="",
    picked_up="",
    dropped="",
    opened="",
    unlocked="",
    closed="",
    opened_box="",
    opened_empty_box="",
    went_through="",
    in_doorway="",
    turned_left="",
    turned_right="",
    moved="",
    accomplished="accomplished",
    failed="failed",
    time_up="time is up",
    not_an_action="no action",
    several_actions="one action only",
    no_thing="which thing",
    not_seen="no {thing}",
    which="which {thing}",
    no_way="no way",
    not_a_door="not a door",
    not_open="{state}",
    locked="locked",
    cannot_carry="not a door",
    hands_full="carry {thing}",
    hands_empty="carry nothing",
    no_room="no room",
    nothing_to_toggle="nothing to toggle",
    cannot_toggle="not a {thing}",
    blocked="{what} in the way",
)
