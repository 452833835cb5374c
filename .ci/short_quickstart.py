"""The quickstart with fewer steps: success must still rise, sampled and above its start."""

import subprocess
import sys
import tempfile
from pathlib import Path

from agentgym_core.files import read_json_lines

GAIN = 0.1
SHORT = [
    "stages.0.training.num_steps=300",
    "stages.1.training.num_steps=30",
    "stages.2.training.num_steps=20",
    "stages.2.rounds.steps_per_stage=7",
    "stages.2.evaluation.every=0",
]

with tempfile.TemporaryDirectory() as folder:
    command = ["agentgym", "train", "recipes/quickstart.yaml", f"output={folder}", *SHORT]
    subprocess.run(command, check=True)
    rows = read_json_lines(Path(folder) / "quickstart" / "metrics.jsonl")

sampled = [r for r in rows if r["phase"] == "evaluation" and r["sampling"] == "t1"]
start, end = (
    next(r["success"] for r in sampled if r["stage"] == stage) for stage in ("imitate", "reinforce")
)
print(f"sampled success {start:.3f} -> {end:.3f}; at least {GAIN} more is asked for")
sys.exit(end - start < GAIN)
