"""From an action to the simulator's moves, planned through what the player sees."""

from collections.abc import Iterator

from agentgym_babyai.commands import Command, Refusal, Verb
from agentgym_babyai.phrases import Phrases
from agentgym_babyai.view import HERE, Move, Thing, View, in_front

Moves = tuple[Move, ...]


def moves_of(command: Command, view: View, phrases: Phrases) -> Moves:
    """The moves that carry out a command, on the shortest way.

    Those of going through a door end with two steps, into it and behind it; the second cannot be
    taken if something stands there.

    Raises:
        Refusal: it cannot be carried out from here.
    """
    match command.verb:
        case "turn left":
            return ("left",)
        case "turn right":
            return ("right",)
        case "move forward":
            return _forward(view, phrases)
        case "drop":
            return _drop(command, view, phrases)
        case "toggle":
            return _toggle(command, view, phrases)
        case "go to":
            thing = find_thing(command, view, phrases)
            return _way(thing, view, phrases) or ("done",)  # the simulator must look at it once
        case "pick up":
            return _pick_up(find_thing(command, view, phrases), view, phrases)
        case "go through" | "toggle and go through":
            door = find_thing(command, view, phrases)
            return _through(door, command.verb == "go through", view, phrases)
        case _:
            return ()


def find_thing(command: Command, view: View, phrases: Phrases) -> Thing:
    """The thing in view that the command names.

    Raises:
        Refusal: there is none of that name and number, or several and it does not say which.
    """
    named = [thing for thing in view.things if thing.name == command.name]
    numbered = [thing for thing in named if command.number in (None, thing.number)]
    if not numbered:
        label = command.name if command.number is None else f"{command.name} {command.number}"
        raise Refusal(phrases.not_seen.format(thing=label))
    if len(numbered) > 1:
        raise Refusal(phrases.which.format(count=len(numbered), thing=command.name))
    return numbered[0]


def possible_commands(view: View, phrases: Phrases) -> Iterator[Command]:
    """What can be done now, the aimless turns and the list of actions left out."""
    simple = (Command(verb=verb) for verb in ("move forward", "toggle", "drop"))
    named = (
        Command(verb=verb, name=thing.name, number=thing.number)
        for thing in view.things
        for verb in _verbs_for(thing)
    )
    for command in (*simple, *named):
        try:
            moves_of(command, view, phrases)
        except Refusal:
            continue
        yield command


def _verbs_for(thing: Thing) -> tuple[Verb, ...]:
    if thing.kind != "door":
        return ("go to", "pick up")
    return ("go to", "go through" if thing.can_be_entered else "toggle and go through")


def _way(thing: Thing, view: View, phrases: Phrases) -> Moves:
    way = view.way_to(thing.place)
    if way is None:
        raise Refusal(phrases.no_way.format(thing=thing.label))
    return way


def _forward(view: View, phrases: Phrases) -> Moves:
    if not view.can_be_entered(in_front(HERE)):
        thing = view.facing()
        what = f"the {thing.state} {thing.label}".replace("  ", " ") if thing else "a wall"
        raise Refusal(phrases.blocked.format(what=what))
    return ("forward",)


def _drop(command: Command, view: View, phrases: Phrases) -> Moves:
    if view.carried is None or command.name not in ("", view.carried):
        raise Refusal(phrases.hands_empty)
    if in_front(HERE) not in view.floor:
        raise Refusal(phrases.no_room)
    return ("drop",)


def _toggle(command: Command, view: View, phrases: Phrases) -> Moves:
    thing = view.facing()
    if thing is None or command.name not in ("", thing.name):
        raise Refusal(phrases.nothing_to_toggle)
    if thing.kind not in ("door", "box"):
        raise Refusal(phrases.cannot_toggle.format(thing=thing.label))
    _check_key(thing, view, phrases)
    return ("toggle",)


def _pick_up(thing: Thing, view: View, phrases: Phrases) -> Moves:
    if thing.kind == "door":
        raise Refusal(phrases.cannot_carry)
    if view.carried is not None:
        raise Refusal(phrases.hands_full.format(thing=view.carried))
    return (*_way(thing, view, phrases), "pickup")


def _through(door: Thing, must_be_open: bool, view: View, phrases: Phrases) -> Moves:
    if door.kind != "door":
        raise Refusal(phrases.not_a_door.format(thing=door.label))
    way = _way(door, view, phrases)
    if door.can_be_entered:
        return (*way, "forward", "forward")
    if must_be_open:
        refusal = phrases.not_open.format(thing=door.label, label=door.label, state=door.state)
        raise Refusal(refusal)
    _check_key(door, view, phrases)
    return (*way, "toggle", "forward", "forward")


def _check_key(thing: Thing, view: View, phrases: Phrases) -> None:
    if thing.state == "locked" and view.carried != f"{thing.color} key":
        raise Refusal(phrases.locked.format(thing=thing.label, color=thing.color))
