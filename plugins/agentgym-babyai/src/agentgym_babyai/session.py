"""One game of BabyAI."""

from collections.abc import Mapping, Sequence

import attrs

from agentgym_babyai.commands import Command, Refusal, read_command
from agentgym_babyai.expert import Expert
from agentgym_babyai.moves import Moves, find_thing, moves_of, possible_commands
from agentgym_babyai.phrases import Phrases
from agentgym_babyai.tasks import read_task
from agentgym_babyai.view import HERE, View, in_front
from agentgym_babyai.world import Outcome, World
from agentgym_core.protocols import Session
from agentgym_core.types import Observation, Task

NOTHING_YET = Outcome(reward=0.0, terminated=False, truncated=False)


@attrs.define
class Game:
    """A task under way."""

    world: World
    expert: Expert
    info: Mapping[str, object]
    last: Outcome = NOTHING_YET


@attrs.define
class BabyAISession(Session):
    """One player in one level."""

    phrases: Phrases
    timed_reward: bool
    """Whether a success is worth less the more moves it took."""
    lists_actions: bool
    _game: Game | None = attrs.field(default=None, init=False)

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin a task. The task alone decides what the level is like.

        Raises:
            ValueError: the task names no level and seed.
        """
        del seed
        level, level_seed = read_task(task)
        world = World(level, level_seed)
        info = {"level": level.name, "seed": level_seed, "max_moves": world.max_moves}
        self._game = Game(world=world, expert=Expert(world, self.phrases), info=info)
        opening = self.phrases.opening.format(mission=world.mission, view=self._describe(world))
        return Observation(messages=opening, info={**info, "mission": world.mission})

    async def step(self, action: str) -> Observation:
        """Carry out one action. One that cannot be changes nothing, and is told the reason.

        Raises:
            RuntimeError: there is no task under way.
        """
        game = self._game
        if game is None:
            raise RuntimeError("no task is under way: call reset(task, seed) before step(action)")
        if game.last.over:
            raise RuntimeError(
                "the task is over and nothing can follow: call reset(task, seed) to begin another"
            )
        view = game.world.view()
        try:
            command = read_command(action, self.phrases)
            if command.verb == "check available actions":
                return self._answer(game, self.phrases.list_actions(self._actions(view)))
            moves = moves_of(command, view, self.phrases)
        except Refusal as refusal:
            return self._answer(game, str(refusal))
        game.expert.follow(command)
        finished = _carry_out(game, moves)
        return self._after(game, self._done(command, view, game.world.view(), finished))

    async def available_actions(self) -> Sequence[str]:
        """What can be done now, as far as the player sees."""
        game = self._game
        return () if game is None or game.last.over else self._actions(game.world.view())

    async def expert_action(self) -> str | None:
        """What one who knows the whole level would do; None if no task is on."""
        game = self._game
        return None if game is None or game.last.over else game.expert.action()

    async def close(self) -> None:
        """Forget the task."""
        self._game = None

    def _actions(self, view: View) -> tuple[str, ...]:
        possible = map(str, possible_commands(view, self.phrases))
        return ("turn left", "turn right", *possible)

    def _describe(self, world: World) -> str:
        view = world.view()
        text = self.phrases.describe(view)
        if self.lists_actions:
            text += "\n" + self.phrases.list_actions(self._actions(view))
        return text

    def _answer(self, game: Game, text: str) -> Observation:
        return Observation(messages=text, info={**game.info, "moves": game.world.num_moves})

    def _after(self, game: Game, done: str) -> Observation:
        """What follows an action that was carried out."""
        last = game.last
        info = {**game.info, "moves": game.world.num_moves}
        if not last.over:
            view = self._describe(game.world)
            text = self.phrases.answer.format(done=done, view=view)
            return Observation(messages=text, info=info)
        success = last.terminated and last.reward > 0
        end = self.phrases.time_up
        if last.terminated:
            end = self.phrases.accomplished if success else self.phrases.failed
        return Observation(
            messages=end,
            reward=last.reward if self.timed_reward else float(success),
            terminated=last.terminated,
            truncated=last.truncated,
            success=success,
            info=info,
        )

    def _done(self, command: Command, before: View, after: View, finished: bool) -> str:
        """What an action did."""
        said = self.phrases
        match command.verb:
            case "turn left":
                return said.turned_left
            case "turn right":
                return said.turned_right
            case "move forward":
                return said.moved
            case "drop":
                return said.dropped.format(thing=before.carried)
            case "toggle":
                return self._toggled(before, after)
            case "pick up":
                template = said.picked_up
            case "go to":
                thing = find_thing(command, before, said)
                template = said.was_there if thing.place == in_front(HERE) else said.went
            case _:
                template = said.went_through if finished else said.in_doorway
        return template.format(thing=command.name)

    def _toggled(self, before: View, after: View) -> str:
        said, thing, found = self.phrases, before.facing(), after.facing()
        assert thing is not None, "only what one faces is toggled"
        if thing.kind == "door":
            templates = {"open": said.closed, "locked": said.unlocked, "closed": said.opened}
            return templates[thing.state].format(thing=thing.name)
        if found is None:
            return said.opened_empty_box.format(thing=thing.name)
        return said.opened_box.format(thing=thing.name, content=found.name)


def _carry_out(game: Game, moves: Moves) -> bool:
    """Take the moves, as long as the task goes on and nothing is in the way; whether all were."""
    for move in moves:
        if move == "forward" and not game.world.view().can_be_entered(in_front(HERE)):
            return False
        game.last = game.world.move(move)
        if game.last.over:
            return move is moves[-1]
    return True
