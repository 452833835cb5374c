"""Print the quickstart's figures over seeds as a table, and fail where they fall short."""

import sys
from pathlib import Path

import numpy as np

from agentgym_core.files import read_json_lines
from agentgym_core.metrics import Row


def success(rows: list[Row], stage: str, sampling: str) -> float:
    """Of the stage's last evaluation."""
    found = [r for r in rows if r["phase"] == "evaluation" and r["stage"] == stage]
    return [r["success"] for r in found if r["sampling"] == sampling][-1]


def figures(folder: Path) -> dict[str, float]:
    """What the page shows of one run."""
    rows = read_json_lines(folder / "metrics.jsonl")
    reinforce = [r for r in rows if r["stage"] == "reinforce" and r["phase"] == "train"]
    return {
        "expert imitation, greedy": success(rows, "learn", "greedy"),
        "expert imitation, sampled": success(rows, "learn", "t1"),
        "demonstrator": success(rows, "imitate", "demonstrator"),
        "start, greedy": success(rows, "imitate", "greedy"),
        "start, sampled": success(rows, "imitate", "t1"),
        "end, greedy": success(rows, "reinforce", "greedy"),
        "end, sampled": success(rows, "reinforce", "t1"),
        "cut by the first horizon": reinforce[0]["horizon_cut"],
        "minutes of steps and evaluations": sum(row["seconds"] for row in rows) / 60,
    }


paths = sorted(Path(sys.argv[1]).glob("quickstart-*"))
found = [figures(path) for path in paths]
print("| | " + " | ".join(f"seed {path.name.split('-')[1]}" for path in paths) + " | mean |")
print("|---" * (len(found) + 2) + "|")
mean: dict[str, float] = {}
for name in found[0]:
    values = [run[name] for run in found]
    mean[name] = float(np.mean(values))
    print(f"| {name} | " + " | ".join(f"{v:.2f}" for v in [*values, mean[name]]) + " |")

gains = [run["end, sampled"] - run["start, sampled"] for run in found]
wanted = {
    "sampled success at the end is at least 0.60": mean["end, sampled"] >= 0.60,
    "greedy success at the end is at least 0.85": mean["end, greedy"] >= 0.85,
    "both are above the demonstrator": min(mean["end, sampled"], mean["end, greedy"])
    > mean["demonstrator"],
    "both are above the start": mean["end, sampled"] > mean["start, sampled"]
    and mean["end, greedy"] > mean["start, greedy"],
    "the sampled gain is at least 0.30, and 0.20 for each seed": np.mean(gains) >= 0.30
    and min(gains) >= 0.20,
    "the first horizon cuts at least 30% of the episodes": mean["cut by the first horizon"] >= 0.3,
    "it takes at most 8 minutes": mean["minutes of steps and evaluations"] <= 8,
}
print()
for claim, holds in wanted.items():
    print(f"{'holds' if holds else 'FAILS'}: {claim}")
sys.exit(not all(wanted.values()))
