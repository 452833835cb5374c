"""An environment in an interpreter of its own, with other versions of attrs and httpx than ours.

It is listed, its keys are checked, and it trains beside another one: python .ci/isolated.py
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / ".ci" / "third_party" / "agentgym-treasure"
PINS = {"attrs": "25.4.0", "httpx": "0.27.2"}


def run(*command: str | Path, fails: bool = False) -> str:
    """What a command says. Whether it fails must be as expected."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, said
    return said


def agentgym(*arguments: str | Path, fails: bool = False) -> str:
    return run(sys.executable, "-m", "agentgym_core.cli", *arguments, fails=fails)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "env" / "bin" / "python"
        run("uv", "venv", "--quiet", "--python", sys.executable, python.parent.parent)
        pins = [f"{name}=={pin}" for name, pin in PINS.items()]
        run("uv", "pip", "install", "--quiet", "--python", python, ".", PACKAGE, *pins)
        for name, pin in PINS.items():
            assert version(name) != pin, f"{name} is the same here"
            told = run(python, "-c", f"import importlib.metadata as m; print(m.version({name!r}))")
            assert told.strip() == pin, told
            print(f"{name}: {version(name)} here, {pin} there")

        recipe = Path(folder) / "run.yaml"
        text = (ROOT / ".ci" / "isolated" / "run.yaml").read_text(encoding="utf-8")
        recipe.write_text(text.replace("PYTHON", str(python)), encoding="utf-8")
        listed = agentgym("plugins", "--python", python)
        print(next(line for line in listed.splitlines() if "treasure" in line))
        assert "treasure" not in agentgym("plugins")

        wrong = agentgym("train", recipe, "environments.0.lenght=4", fails=True)
        print(wrong.strip())
        assert "error: environments.0.lenght: unknown key. Did you mean length?" in wrong
        block = f"environments.0={{use: tresure, python: {python}}}"
        missing = agentgym("train", recipe, block, fails=True)
        print(missing.strip())
        assert "Did you mean treasure?" in missing

        agentgym("train", recipe, f"output={folder}")
        rows = (Path(folder) / "isolated" / "metrics.jsonl").read_text(encoding="utf-8")
        steps = [row for row in map(json.loads, rows.splitlines()) if row["phase"] == "train"]
        assert len(steps) == 3, rows
        played = sorted(Path(folder).glob("isolated/rollouts/grpo/step-*.jsonl"))
        assert len(played) == 3, played
        for path in played:
            names = {json.loads(line)["environment"] for line in path.read_text().splitlines()}
            print(f"{path.stem} played {sorted(names)}")
            assert names == {"textcraft", "treasure"}


if __name__ == "__main__":
    main()
