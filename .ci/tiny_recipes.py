"""Every recipe that trains three steps on a laptop, of each environment and kind of algorithm.

Give names to run only those: python .ci/tiny_recipes.py babyai mixed
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def train(recipe: Path, folder: str) -> None:
    """Imitation, and in all three steps in which something was played and nothing failed."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "agentgym_core.cli", "train", str(recipe), f"output={folder}"]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = Path(folder) / recipe.stem.replace("_", "-")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["phase"] == "train" and "episodes" in row]
    assert len(steps) == 3, rows
    assert all(row["episodes"] > 0 and row["dropped"] == 0 for row in steps), steps
    end = [row["success"] for row in rows if row["phase"] == "evaluation"][-1]
    seconds = time.perf_counter() - start
    shown = ", ".join(f"{row['success']:.2f}" for row in steps)
    print(f"{recipe.stem}: success {shown} in three steps, {end:.2f} after, {seconds:.0f} s")


def main() -> None:
    recipes = sorted((ROOT / "recipes").glob("*_tiny.yaml"))
    chosen = [recipe for recipe in recipes if recipe.stem[: -len("_tiny")] in sys.argv[1:]]
    assert recipes
    with tempfile.TemporaryDirectory() as folder:
        for recipe in chosen or recipes:
            train(recipe, folder)


if __name__ == "__main__":
    main()
