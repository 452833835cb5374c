"""Somebody else's package: built, installed, trained with, broken in ten ways, and removed.

Each break must end in one line that names the package and says how to mend it, while what other
packages bring goes on working. Three minutes on two cores: python .ci/third_party.py
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent / "third_party"
PACKAGE = "agentgym-treasure"
OURS = ("", "plugins/agentgym-grpo", "plugins/agentgym-sft", "plugins/agentgym-torch")
PLUGIN = "plugin.py"
ENVIRONMENT = "environment.py"
LEARNING = "learning.py"


@attrs.frozen(kw_only=True)
class Break:
    """One way to be broken."""

    name: str
    file: str = ENVIRONMENT
    old: str
    new: str
    says: str
    """A pattern that the one line must match, beside the package and its version."""
    overrides: tuple[str, ...] = ()
    stops_all: bool = False
    """Only a name that two packages claim stops what others bring, until one is left out."""


BREAKS = (
    Break(
        name="import error",
        file=PLUGIN,
        old="from agentgym_core import hookimpl\n",
        new="import no_such_thing\nfrom agentgym_core import hookimpl\n",
        says=r"No module named 'no_such_thing'.*",
    ),
    Break(
        name="wrong hook name",
        file=PLUGIN,
        old="def register_environments(",
        new="def register_enviroments(",
        says=r"which is no hook\. Did you mean register_environments\?",
    ),
    Break(
        name="extra hook argument",
        file=PLUGIN,
        old="def register_environments(register)",
        new="def register_environments(register, config)",
        says=r"config.*register_environments|register_environments.*config",
    ),
    Break(
        name="duplicate name",
        file=PLUGIN,
        old='register("against-peers"',
        new='register("group-relative"',
        says=r"agentgym-grpo 0\.1\.0.*AGENTGYM_BLOCK_PLUGINS=agentgym-treasure",
        stops_all=True,
    ),
    Break(
        name="not attrs",
        old="@attrs.frozen(kw_only=True)\nclass Treasure",
        new="class Treasure",
        says=r"attrs\.frozen",
    ),
    Break(
        name="wrong field type in YAML",
        old="length: int",
        new="length: int",
        overrides=("environment.length=four",),
        says=r"environment\.length: expected an? .*, got 'four'",
    ),
    Break(
        name="NaN reward",
        file=LEARNING,
        old='self.bonus * (turn.observation == "warm")',
        new='float("nan")',
        says=r"Nearness .*finite number",
    ),
    Break(
        name="raises in step",
        old='if action == "dig":',
        new='raise KeyError("spade")\n        if action == "dig":',
        says=r"Treasure .*KeyError: 'spade'",
    ),
    Break(
        name="an awaited hang in step",
        old='if action == "dig":',
        new='import asyncio\n\n        await asyncio.sleep(600)\n        if action == "dig":',
        overrides=("limits.max_call_seconds=0.5",),
        says=r"Treasure .*did not answer step within limits\.max_call_seconds=0\.5",
    ),
    Break(
        name="returns the wrong type",
        file=LEARNING,
        old="return min(self.last, self.first * 2 ** min(step // self.every, 30))",
        new="return float(self.first)",
        says=r"Doubling .*max_rounds at step 0: .*2\.0, expected a whole number",
    ),
)


def run(*command: str | Path, cwd: Path = ROOT, fails: bool = False, **variables: str) -> str:
    """What a command says. Whether it fails must be as expected."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment,
    )
    if bool(done.returncode) is not fails:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}exit status {done.returncode}")
    return done.stdout


@attrs.frozen
class Bench:
    """A virtual environment with our packages, and a copy of theirs to build wheels from."""

    folder: Path

    @property
    def bin(self) -> Path:
        """Commands of the virtual environment."""
        return self.folder / "venv" / "bin"

    def prepare(self) -> None:
        """Install ours, as wheels."""
        run("uv", "venv", "--quiet", "--python", sys.executable, self.folder / "venv")
        wheels = self.folder / "ours"
        for package in OURS:
            run("uv", "build", "--quiet", "--wheel", "--out-dir", wheels, ROOT / package)
        self.pip("install", "pytest", *wheels.glob("*.whl"))

    def pip(self, *arguments: str | Path) -> None:
        """Of the virtual environment."""
        verb, *rest = arguments
        run("uv", "pip", verb, "--quiet", "--python", self.bin / "python", *rest)

    def install(self, changes: Mapping[str, tuple[str, str]]) -> str:
        """Build and install theirs with those changes; returns the wheel's name."""
        source, wheels = self.folder / PACKAGE, self.folder / "theirs"
        for old in (source, wheels):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(HERE / PACKAGE, source)
        for name, (before, after) in changes.items():
            path = source / "src" / "agentgym_treasure" / name
            text = path.read_text(encoding="utf-8")
            assert before in text, f"{name} has no {before!r}"
            path.write_text(text.replace(before, after, 1), encoding="utf-8")
        run("uv", "build", "--quiet", "--wheel", "--out-dir", wheels, source)
        (wheel,) = wheels.glob("*.whl")
        self.pip("install", "--reinstall-package", PACKAGE, wheel)
        return wheel.name

    def agentgym(self, *arguments: str | Path, fails: bool = False, **variables: str) -> str:
        """Call the command where the runs are."""
        return run(self.bin / "agentgym", *arguments, cwd=self.folder, fails=fails, **variables)

    def train(self, file: str, *overrides: str, fails: bool = False) -> str:
        """A new run."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        return self.agentgym("train", HERE / file, *overrides, fails=fails)


def whole(bench: Bench) -> None:
    """The package as it should be."""
    print(bench.install({}))
    print(run(bench.bin / "pytest", "-q", bench.folder / PACKAGE).splitlines()[-1])
    for name in ("treasure", "nearness", "against-peers", "doubling"):
        print(f"{name}: {bench.agentgym('check', name).splitlines()[-1]}")
    steps = [line for line in bench.train("warm.yaml").splitlines() if line.startswith("grpo")]
    assert len(steps) == 2, steps
    print("\n".join(steps))


def broken(bench: Bench, way: Break) -> None:
    """One line about the package; the others go on."""
    bench.install({way.file: (way.old, way.new)})
    said = bench.train("run.yaml", *way.overrides, fails=True)
    assert "Traceback" not in said, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    error = errors[0]
    print(f"{way.name}:\n  {error}")
    assert f"{PACKAGE} 0.3.1" in error, error
    assert re.search(way.says, error), f"{way.says!r} is not in: {error}"
    without = {"AGENTGYM_BLOCK_PLUGINS": PACKAGE} if way.stops_all else {}
    assert "checks hold" in bench.agentgym("check", "group-relative", **without)


def removed(bench: Bench) -> None:
    """The package is gone."""
    bench.pip("uninstall", PACKAGE)
    said = bench.train("run.yaml", fails=True)
    print(said.strip())
    assert "is called 'doubling'. Installed: fixed." in said
    assert "pip install" in said
    assert "Traceback" not in said


def main() -> None:
    """All of it, in a folder that is removed."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        bench.prepare()
        whole(bench)
        for way in BREAKS:
            broken(bench, way)
        removed(bench)


if __name__ == "__main__":
    main()
