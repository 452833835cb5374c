"""Do the tests notice when the numbers change? Small faults are planted, one at a time.

    python .ci/mutations.py [PATH ...] [--sample N --seed S] [--jobs 2] [--least 0.9]

What computes in the core, and all of each algorithm's package; or the files that are named. A fault
in a function is planted into the live function of a forked child, which has all tests collected and
runs those that reach the line, the quickest first. One in a constant, a field or a default is
planted before anything is imported. Prints the share that is caught for each file and what
survived; exits with 1 below `--least`.

`.ci/mutations_equivalent.toml` lists faults that change no result, each with its reason: they count
as not caught, and an entry that fits no fault, or one that is caught, is an error.
OMP_NUM_THREADS=1 makes it quicker.
"""

import argparse
import functools
import gc
import importlib.machinery
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import attrs
import pytest
import torch  # once, before the forks, because it is slow
from mutants import Mutant, function_code, mutants_of
from mutations_report import equivalent, report
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401  likewise

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    *("sequences", "losses", "batching", "importance", "kl_rewards", "statistics", "credit"),
    *("supervised", "imitation", "on_policy"),
)
ALGORITHMS = ("grpo", "ppo", "rloo", "reinforce-pp", "dpo", "sft", "evol")
TESTS = (
    "tests/golden",
    "tests/unit/test_on_policy.py",
    "tests/unit/test_conversations.py",
    "tests/unit/configuration/test_bounds.py",
    "tests/unit/configuration/test_algorithm_readmes.py",
    *(f"plugins/agentgym-{name}/tests" for name in ALGORITHMS),
)
"""Those that may catch a fault."""
MAX_SECONDS = 60
"""Of the tests of one mutant, beyond four times what they take without it: a fault that never ends
is caught, and a busy machine is no fault."""
BROKEN = 3
"""Exit status of a child whose tests could not be run, which says nothing of the fault."""

Reached = dict[str, dict[str, list[int]]]
"""By test and by file, the lines that were executed."""


def sources(named: Sequence[str]) -> list[Path]:
    """What is mutated."""
    if named:
        return [Path(path).resolve() for path in named]
    core = [ROOT / "agentgym_core" / f"{name}.py" for name in CORE]
    plugins = [
        path
        for name in ALGORITHMS
        for path in sorted((ROOT / "plugins" / f"agentgym-{name}" / "src").glob("*/*.py"))
        if path.name not in ("__init__.py", "plugin.py")
    ]
    return [*core, *plugins]


def test_paths() -> list[str]:
    """The tests that may catch a fault; one that is gone is an error, not fewer tests."""
    if missing := [path for path in TESTS if not (ROOT / path).exists()]:
        sys.exit(f"TESTS names what is not there: {', '.join(missing)}")
    return [str(ROOT / path) for path in TESTS]


class Session:
    """The pytest plugin: in place of one run of the tests, one for each mutant of a function."""

    def __init__(self, work: Callable[["Session"], None]) -> None:
        self.work = work
        self.items: list[pytest.Item] = []
        self.failed = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work with what was collected, in place of running it."""
        self.items = list(session.items)
        if session.testsfailed:
            sys.exit("the tests cannot be collected")
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, of set-up as well."""
        self.failed = self.failed or report.failed

    def run(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        """Run tests one by one, until one fails; they are yielded before they run."""
        for item, after in itertools.zip_longest(items, items[1:]):
            yield item
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                return


def fork(work: Callable[[], int], seconds: float = 0) -> int:
    """Run it in a child, quietly, for so long at most; returns the child's process id."""
    child = os.fork()
    if child:
        return child
    signal.alarm(int(MAX_SECONDS + 4 * seconds))
    said = os.dup(2)
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os._exit(work())
    except BaseException:
        os.write(said, traceback.format_exc().encode())
    os._exit(BROKEN)


def survivors(
    mutants: Sequence[Mutant],
    test: Callable[[Mutant], int],
    seconds: Callable[[Mutant], float],
    jobs: int,
) -> set[int]:
    """Places of the mutants that no test caught; `test` runs in a child, and gives 0 for those.

    `seconds` is what the tests of a mutant take without it.
    """
    running: dict[int, int] = {}
    left = set[int]()

    def wait() -> None:
        child, status = os.wait()
        place = running.pop(child)
        if status == 0:
            left.add(place)
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            print(f"caught by the time it takes: {mutants[place].name}", flush=True)
        elif os.waitstatus_to_exitcode(status) != 1:
            sys.exit(f"{mutants[place].name}: its tests could not be run: status {status}")

    for place, mutant in enumerate(mutants):
        if len(running) == jobs:
            wait()
        running[fork(lambda mutant=mutant: test(mutant), seconds(mutant))] = place
    while running:
        wait()
    return left


def reach(session: Session, files: frozenset[str], output: Path) -> int:
    """Run all tests as they are, and note which lines each executes; in a child."""
    signal.alarm(0)
    reached: Reached = {}
    seconds: dict[str, float] = {}
    lines: dict[str, set[int]] = {}

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_filename].add(frame.f_lineno)
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename in files else None

    threading.settrace(trace)
    before = ""
    start = time.perf_counter()
    for item in itertools.chain(session.run(session.items), [None]):
        if before:
            reached[before] = {file: sorted(found) for file, found in lines.items() if found}
            seconds[before] = time.perf_counter() - start
        sys.settrace(trace)
        lines = {file: set() for file in files}
        before, start = item.nodeid if item else "", time.perf_counter()
    sys.settrace(None)
    failed = list(reached)[-1] if session.failed else ""
    output.write_text(json.dumps({"reached": reached, "seconds": seconds, "failed": failed}))
    return 0


Functions = dict[tuple[str, str, int], list[FunctionType]]


def fitting(mutant: Mutant, functions: Functions) -> CodeType | None:
    """The code that the live function is given; None where it has none that fits."""
    assert mutant.owner is not None
    code = function_code(mutant.code, mutant.owner)
    found = functions.get((mutant.path, *mutant.owner), [])
    fits = code and found and all(f.__code__.co_freevars == code.co_freevars for f in found)
    return code if fits else None


def plant(mutant: Mutant, functions: Functions) -> None:
    code = fitting(mutant, functions)
    assert code is not None
    assert mutant.owner is not None
    for function in functions[(mutant.path, *mutant.owner)]:
        function.__code__ = code


def live_functions(files: frozenset[str]) -> Functions:
    found = defaultdict[tuple[str, str, int], list[FunctionType]](list)
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename in files:
            code = function.__code__
            found[(code.co_filename, code.co_qualname, code.co_firstlineno)].append(function)
    return dict(found)


def test_functions(
    session: Session, mutants: Sequence[Mutant], files: frozenset[str], folder: Path, jobs: int
) -> None:
    """Test all mutants of functions; writes the places of survivors, and what reaches what."""
    output = folder / "reached.json"
    _, status = os.waitpid(fork(lambda: reach(session, files, output)), 0)
    if status or not output.exists():
        sys.exit(f"the tests stopped without a fault: status {status}")
    found = json.loads(output.read_text())
    if found["failed"]:
        sys.exit(f"{found['failed']} fails without a fault")
    functions = live_functions(files)

    def quickest(wanted: set[str]) -> int:
        items = [item for item in session.items if item.nodeid in wanted]
        for _ in session.run(sorted(items, key=lambda item: found["seconds"][item.nodeid])):
            pass
        return int(session.failed)

    def test(mutant: Mutant) -> int:
        plant(mutant, functions)
        return quickest(set(tests_of(mutant, found["reached"])))

    # In this order as well, no test fails of itself.
    everything = sum(found["seconds"].values())
    _, status = os.waitpid(fork(lambda: quickest(set(found["seconds"])), everything), 0)
    if status:
        sys.exit(f"the quickest first, the tests fail without a fault: status {status}")

    # One that cannot be planted must not pass for caught: its module is imported anew.
    planted = [place for place, each in enumerate(mutants) if fitting(each, functions)]
    takes = functools.partial(seconds_of, found=found)
    left = survivors([mutants[place] for place in planted], test, takes, jobs)
    others = sorted(set(range(len(mutants))) - set(planted))
    result = {"left": sorted(planted[place] for place in left), "others": others}
    (folder / "functions.json").write_text(json.dumps(result))


def tests_of(mutant: Mutant, reached: Reached) -> list[str]:
    """The tests that execute the statement; of a constant or a field, those beside one in the file.

    A test that reads a field, or has a validator refuse one, executes no line of the file itself;
    those of the configuration do little else.
    """
    if mutant.owner is None:
        beside = {_file_of(test) for test, files in reached.items() if mutant.path in files}
        return [
            test
            for test in reached
            if _file_of(test) in beside or test.startswith("tests/unit/configuration/")
        ]
    lines = set(range(mutant.first, mutant.last + 1))
    return [test for test, files in reached.items() if lines & set(files.get(mutant.path, ()))]


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def seconds_of(mutant: Mutant, found: dict[str, Any]) -> float:
    return sum(found["seconds"][test] for test in tests_of(mutant, found["reached"]))


def in_a_session(work: Callable[[Session], None], paths: Sequence[str]) -> int:
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    # What is imported before the forks holds plugins of pytest, whose asserts do not matter here.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *paths], plugins=[Session(work)]))


def test_module(mutant: Mutant, reached: Reached) -> int:
    """Test a mutant whose module must be imported with its fault; in a child that has not."""
    get_code = importlib.machinery.SourceFileLoader.get_code

    def mutated(loader: Any, fullname: str) -> CodeType | None:
        same = os.path.realpath(loader.get_filename(fullname)) == mutant.path
        return mutant.code if same else get_code(loader, fullname)

    importlib.machinery.SourceFileLoader.get_code = mutated  # type: ignore[method-assign]
    wanted = set(tests_of(mutant, reached))
    if not wanted:
        return 0
    status = [1]

    def work(session: Session) -> None:
        # Tests that the fault has taken away or renamed are a reason for a second look, no catch.
        for _ in session.run([item for item in session.items if item.nodeid in wanted]):
            pass
        status[0] = int(session.failed)

    files = sorted(set(map(_file_of, wanted)))
    in_a_session(work, [str(ROOT / file) for file in files])
    return status[0]


def all_mutants(files: Sequence[Path]) -> list[Mutant]:
    return [
        mutant
        for path in files
        for mutant in mutants_of(str(path), path.read_text(encoding="utf-8"))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--sample", type=int, default=0, help="test so many, drawn by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.9)
    arguments = parser.parse_args()
    os.chdir(ROOT)
    torch.set_num_threads(1)
    start = time.perf_counter()
    files = sources(arguments.paths)
    mutants = all_mutants(files)
    same = equivalent(mutants, files)
    if arguments.sample and arguments.sample < len(mutants):
        places = random.Random(arguments.seed).sample(range(len(mutants)), arguments.sample)
        mutants = [mutants[place] for place in sorted(places)]
    of_functions = [mutant for mutant in mutants if mutant.owner is not None]
    of_modules = [mutant for mutant in mutants if mutant.owner is None]
    print(f"{len(mutants)} faults in {len(files)} files", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder, names = Path(name), frozenset(map(str, files))
        work = functools.partial(
            test_functions, mutants=of_functions, files=names, folder=folder, jobs=arguments.jobs
        )
        child = os.fork()
        if not child:
            with (folder / "log").open("w") as log:
                os.dup2(log.fileno(), 1)
                try:  # leaves by no other way, which would remove the folder
                    in_a_session(work, test_paths())
                except BaseException:
                    traceback.print_exc(file=log)
                sys.stdout.flush()
                log.flush()
                os._exit(0)
        os.waitpid(child, 0)
        if not (folder / "functions.json").exists():
            print((folder / "log").read_text())
            return 1
        result = json.loads((folder / "functions.json").read_text())
        left = [of_functions[place] for place in result["left"]]
        of_modules += [of_functions[place] for place in result["others"]]
        found = json.loads((folder / "reached.json").read_text())
        print(
            f"{time.perf_counter() - start:.0f} s for {len(of_functions)} in functions", flush=True
        )
    test = functools.partial(test_module, reached=found["reached"])
    takes = functools.partial(seconds_of, found=found)
    for mutant in of_modules[:1]:
        whole = Path(mutant.path).read_text(encoding="utf-8")
        faultless = attrs.evolve(mutant, code=compile(whole, mutant.path, "exec"))
        if not survivors([faultless], test, takes, 1):
            sys.exit(f"imported anew without a fault, {mutant.path} fails its tests")
    in_modules = survivors(of_modules, test, takes, arguments.jobs)
    left += [of_modules[place] for place in sorted(in_modules)]
    share = report(mutants, left, same)
    print(f"\n{time.perf_counter() - start:.0f} s")
    return int(share < arguments.least)


if __name__ == "__main__":
    sys.exit(main())
