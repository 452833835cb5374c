"""Every environment behind `agentgym serve`, played by its expert through the server.

ScienceWorld's and SearchQA's must always succeed, BabyAI's in 36 of 40 levels with five seeds each.
Give names to play only those: python .ci/served_experts.py sciworld
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_core.testing.servers import serving

ROOT = Path(__file__).parent.parent
SERVED: Mapping[str, Mapping[str, Any]] = {
    "textcraft": {"options": [], "split": "test", "rounds": 60},
    "sciworld": {"options": ["num_variations=1"], "split": "test", "rounds": 300},
    "babyai": {"options": ["num_seeds=5"], "split": "all", "rounds": 300},
    "searchqa": {"options": [], "split": "test", "rounds": 10},
}


def play(name: str, served: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The expert's episodes of a split, as `agentgym eval` writes them."""
    # A PATH of this interpreter alone: no Java of the system is found.
    path = str(Path(sys.executable).parent)
    assert shutil.which("java", path=path) is None
    with serving(name, *served["options"], "--port", "0", PATH=path) as (address, _):
        command = [
            *(sys.executable, "-m", "agentgym_core.cli", "eval", "recipes/textcraft_fixed.yaml"),
            *("--expert", "--out", str(folder / name)),
            f"environment={{use: {name}, env_addr: '{address}'}}",
            f"evaluation.split={served['split']}",
            f"evaluation.max_rounds={served['rounds']}",
            "training.max_concurrent_episodes=32",
        ]
        print(*command[3:], flush=True)
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = (folder / name / "evaluation-expert.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def holds(name: str, rows: list[dict[str, Any]]) -> bool:
    """Whether the expert is as good as it must be."""
    won = sum(row["success"] for row in rows)
    print(f"{name}: {won} of {len(rows)} episodes succeeded, no failure of the environment")
    if any(row["ending"].endswith("-failed") for row in rows):
        return False
    if name != "babyai":
        return won == len(rows)
    levels = Counter(int(row["item_id"].split("_")[1]) % 40 for row in rows if row["success"])
    solved = sum(count == 5 for count in levels.values())
    print(f"babyai: {solved} of 40 levels with each of 5 seeds")
    return solved >= 36


def main() -> None:
    names = sys.argv[1:] or list(SERVED)
    with tempfile.TemporaryDirectory() as folder:
        bad = [name for name in names if not holds(name, play(name, SERVED[name], Path(folder)))]
    sys.exit(f"below the bar: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
