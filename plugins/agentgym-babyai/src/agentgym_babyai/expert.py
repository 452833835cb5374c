"""The expert of a game: a plan for the whole level, said in actions that a player has."""

from agentgym_babyai.commands import Command, Refusal
from agentgym_babyai.moves import moves_of, possible_commands
from agentgym_babyai.phrases import Phrases
from agentgym_babyai.planning import Step, plan
from agentgym_babyai.sketch import OPENING_COST, STEPS, Cell, Sketch, ahead_of
from agentgym_babyai.view import Place, View
from agentgym_babyai.world import World

_WALKS = ("go to", "go through", "toggle and go through", "move forward")
TURNS = (Command(verb="turn left"), Command(verb="turn right"))


class Expert:
    """Knows all of a level, also what the player does not see, and plans anew after every mistake.

    Its actions are a player's all the same: only what the player sees can be named.
    """

    def __init__(self, world: World, phrases: Phrases) -> None:
        self._world = world
        self._phrases = phrases
        self._steps: list[Step] = []
        self._advice: tuple[str, bool] | None = None  # an action, and whether it ends a step
        self._is_lost = False  # there is no plan, and turning does not make one

    def follow(self, command: Command) -> None:
        """Hear what the player is about to do."""
        if self._advice is None or self._advice[0] != str(command):
            self._steps = []
        elif self._advice[1]:
            self._steps = self._steps[1:]
        self._advice = None
        self._is_lost = self._is_lost and command in TURNS

    def action(self) -> str:
        """What to do now. Where the mission cannot be accomplished any more, it is to look on."""
        for steps in () if self._is_lost else (self._steps, None):
            self._steps = plan(self._world) if steps is None else steps
            found = self._next(self._steps[0]) if self._steps else None
            if found is not None:
                self._advice = (str(found[0]), found[1])
                return self._advice[0]
        self._is_lost = True
        return str(TURNS[0])

    def _next(self, step: Step) -> tuple[Command, bool] | None:
        """The action that brings one furthest in a step, and whether it ends it."""
        sketch, view = Sketch.of(self._world), self._world.view()
        distances = sketch.distances(step.cell)
        now = distances.get(sketch.pose)
        if now is None:
            return None
        act = self._act(step, _place_of(step.cell, sketch), view, is_there=now == 0)
        if act is not None:
            return act, True
        walks = (c for c in possible_commands(view, self._phrases) if c.verb in _WALKS)
        best, left = None, now
        for command in (*walks, *TURNS):
            pose = sketch.after(moves_of(command, view, self._phrases))
            if distances.get(pose, now) < left:
                best, left = command, distances[pose]
        if best is None:  # behind the door that is faced a whole step would be too far
            ahead = ahead_of(sketch.pose)
            if sketch.entry_cost(ahead) != OPENING_COST:
                return None
            best = Command(verb="toggle")
        return best, left == 0 and step.verb == "face"

    def _act(self, step: Step, place: Place, view: View, *, is_there: bool) -> Command | None:
        """The action that does what is to be done at the end of the step, if it is possible."""
        thing = view.by_place.get(place)
        if step.verb in ("drop", "toggle"):
            command = Command(verb=step.verb)
            possible = is_there
        elif thing is None:  # the place where something was that is carried
            command = TURNS[0]
            possible = is_there
        else:
            verb = "go to" if step.verb == "face" else "pick up"
            command = Command(verb=verb, name=thing.name, number=thing.number)
            possible = True
        try:
            moves_of(command, view, self._phrases)
        except Refusal:
            return None
        return command if possible else None


def _place_of(cell: Cell, sketch: Sketch) -> Place:
    """A cell as the player sees it: ahead and to the right."""
    (x, y), heading = sketch.pose
    (ax, ay), (rx, ry) = STEPS[heading], STEPS[(heading + 1) % 4]
    dx, dy = cell[0] - x, cell[1] - y
    return (dx * ax + dy * ay, dx * rx + dy * ry)
