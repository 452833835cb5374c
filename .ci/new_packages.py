"""Write a package of every kind, build it, and try the wheel where nothing but the core is.

The core's wheel is built from its source distribution, so the templates must be in both. There is
no torch there: what needs it, an algorithm's loss, is tried by tests/unit/test_new.py.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentgym_core.cli.new import KINDS

ROOT = Path(__file__).parent.parent


def run(*command: str | Path) -> str:
    """What a command prints. If it fails, so does everything, with what it said."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\nexit status {done.returncode}")
    return done.stdout


def build(package: Path, wheels: Path, *options: str) -> Path:
    """The wheel of a package."""
    run("uv", "build", package, "--out-dir", wheels, *options)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def main() -> None:
    """A line for each kind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = folder / "venv" / "bin"
        python = commands / "python"
        core = build(ROOT, folder / "core", "--package", "agentgym-core")
        run("uv", "venv", "--python", sys.executable, folder / "venv")
        run("uv", "pip", "install", "--python", python, f"{core}[hf]", "pytest")
        for kind in KINDS:
            start, called = time.monotonic(), f"new-{kind}"
            package = folder / f"agentgym-{called}"
            run(commands / "agentgym", "new", kind, called, "--into", package)
            wheel = build(package, folder / kind, "--wheel")
            run("uv", "pip", "install", "--python", python, wheel)
            tested = run(commands / "pytest", "-q", package).splitlines()[-1]
            checked = run(commands / "agentgym", "check", called).splitlines()[-1]
            run("uv", "pip", "uninstall", "--python", python, package.name)
            print(f"{wheel.name}: {tested}; {checked}; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
