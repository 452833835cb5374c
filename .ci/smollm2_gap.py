"""Fail unless the engine and the trainer agreed on every sampled token of a run, in float32."""

import sys
from pathlib import Path

from agentgym_core.files import read_json_lines

LARGEST = 1e-4
"""Nats. Thirty layers add up more rounding than the small models of the tests, held to 1e-5."""

rows = [r for r in read_json_lines(Path(sys.argv[1]) / "metrics.jsonl") if r["phase"] == "train"]
for row in rows:
    print(
        f"step {row['step']}: {row['episodes']:.0f} episodes, {row['tokens']:.0f} tokens each, "
        f"log-probabilities apart by {row['sampling_gap_max']:.1e} at most"
    )
sys.exit(len(rows) < 3 or max(row["sampling_gap_max"] for row in rows) > LARGEST)
