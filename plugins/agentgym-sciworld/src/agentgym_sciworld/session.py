"""One player of ScienceWorld."""

from collections.abc import Sequence

import attrs

from agentgym_core.protocols import Session
from agentgym_core.types import Observation, Task
from agentgym_sciworld import phrases, pool
from agentgym_sciworld.simulator import Simulator, World
from agentgym_sciworld.tasks import read_task

_ARTICLES = frozenset({"a", "an", "the"})
FIRST_LOOK = "look around"


@attrs.define
class Game:
    """A task under way."""

    world: World
    simulator: Simulator
    answer: str
    """What the simulator said last."""
    score: int = 0
    """From 0 to 100; -100 once the task has failed."""
    paid: int = 0
    """Of the score, as rewards. Some tasks begin where their first part is done: that is paid with
    the first action."""
    actions: list[str] = attrs.field(factory=list)
    """What the simulator was told after the first look."""
    num_steps: int = 0
    """Actions taken, those included that it was not told."""
    ended: bool = False
    path: tuple[str, ...] | None = None
    """The simulator's own solution, once somebody asked for it."""

    @property
    def info(self) -> dict[str, str | int]:
        """For the record."""
        world = self.world
        return {"task": world.task, "variation": world.variation, "score": self.score}

    @property
    def next_of_path(self) -> str | None:
        """The first action of the path that has not been taken in its turn."""
        path = iter(self.path or ())
        expected = next(path, None)
        for action in self.actions:
            if action == expected:
                expected = next(path, None)
        return expected


@attrs.define(kw_only=True)
class SciWorldSession(Session):
    """One player in one simulator, which it borrows from the pool and gives back when it closes.

    Its calls block for as long as the simulator takes: 0.01 s for a step, up to 0.1 s in the tasks
    about genetics.
    """

    simplifications: str
    max_steps: int | None
    java: str | None
    java_options: tuple[str, ...]
    _simulator: Simulator | None = attrs.field(default=None, init=False)
    _game: Game | None = attrs.field(default=None, init=False)

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin a task. Its variation alone decides what the world is like, not the seed.

        Raises:
            ValueError: the task names no variation of ScienceWorld.
            RuntimeError: the simulator failed.
        """
        del seed
        world = World(*read_task(task), self.simplifications)
        self._game = None
        simulator = self.simulator()
        description = simulator.load(world)
        look, score, _ = simulator.step(FIRST_LOOK)
        self._game = Game(world=world, simulator=simulator, answer=look, score=score)
        info = {**self._game.info, "task_description": description}
        return Observation(messages=f"{description}\n\n{look}", info=info)

    async def step(self, action: str) -> Observation:
        """Take one action, whatever it is. The simulator answers also what it does not understand.

        Raises:
            RuntimeError: there is no task under way, or the simulator failed.
        """
        game = self._game
        if game is None:
            raise RuntimeError("no task is under way: call reset(task, seed) before step(action)")
        if game.ended:
            raise RuntimeError(
                "the task has ended and nothing can follow: call reset(task, seed) to begin another"
            )
        game.num_steps += 1
        command = to_command(action)
        if _is_reset(command):
            refusal = Observation(
                messages=phrases.NO_RESET, success=game.score == 100, info=game.info
            )
            return self._cut(game, refusal)
        answer, score, completed = game.simulator.step(command)
        game.actions.append(command)
        game.answer = answer
        return self._cut(game, self._judge(game, score, completed))

    async def available_actions(self) -> Sequence[str]:
        """Actions that can be carried out, or the numbers where one has to be chosen.

        Hundreds of them, many of them senseless. Takes 0.1 to 0.5 s.
        """
        game = self._game
        if game is None or game.ended:
            return ()
        return tuple(a for a in game.simulator.valid_actions() if not _is_reset(to_command(a)))

    async def expert_action(self) -> str | None:
        """Next action of the simulator's own solution; None at its end or if no task is on.

        It leads to success if it is followed from the start. After other actions it goes on with
        what it would have done, which works where they changed nothing that matters.

        The first call of an episode takes as long as `Simulator.gold_path`, and as long as the
        actions so far took, which are taken once more.
        """
        game = self._game
        if game is None or game.ended:
            return None
        if game.path is None:
            game.path = tuple(map(to_command, game.simulator.gold_path(game.world)))
            self._replay(game)
        return game.next_of_path

    async def close(self) -> None:
        """Give the simulator back."""
        self._game = None
        if self._simulator is not None:
            pool.give_back(self._simulator, self.java, self.java_options)
            self._simulator = None

    def simulator(self) -> Simulator:
        """Its simulator, alive when it is asked for; a broken one is replaced.

        Raises:
            ValueError: `java` is no program.
            RuntimeError: the simulator does not start.
        """
        if self._simulator is not None and not self._simulator.is_alive:
            pool.discard(self._simulator)
            self._simulator = None
        if self._simulator is None:
            self._simulator = pool.borrow(self.java, self.java_options)
        return self._simulator

    def _replay(self, game: Game) -> None:
        """Bring the simulator back to where the game is."""
        game.simulator.load(game.world)
        answer = game.simulator.step(FIRST_LOOK)[0]
        for action in game.actions:
            answer = game.simulator.step(action)[0]
        if answer != game.answer:
            self._game = None
            raise RuntimeError(
                f"{game.world} is not the same when its {len(game.actions)} actions are taken "
                f"again: {game.answer[:200]!r}, then {answer[:200]!r}"
            )

    def _judge(self, game: Game, score: int, completed: bool) -> Observation:
        """A failed task takes nothing back of what was earned, and earns nothing more."""
        gain = score - game.paid if score >= 0 else 0
        game.score, game.paid = score, game.paid + gain
        game.ended = completed or score < 0
        return Observation(
            messages=game.answer,
            reward=gain / 100,
            terminated=game.ended,
            success=score == 100,
            info=game.info,
        )

    def _cut(self, game: Game, observation: Observation) -> Observation:
        """End the episode at the step limit, if it has not ended by itself."""
        if game.ended or game.num_steps != self.max_steps:
            return observation
        game.ended = True
        return attrs.evolve(
            observation,
            messages=f"{observation.text}\n{phrases.NO_MORE_STEPS}",
            truncated=True,
        )


def to_command(action: str) -> str:
    """One line of lower-case words, as the simulator would read it.

    It is told exactly this, so that what is looked for in it cannot hide behind control characters
    or capitals.
    """
    printable = "".join(character if character.isprintable() else " " for character in action)
    return " ".join(printable.lower().split())


def _is_reset(command: str) -> bool:
    return [word for word in command.split() if word not in _ARTICLES] == ["reset", "task"]
