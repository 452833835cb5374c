"""Writes what the package agentgym-sciworld stores of the simulator: its tasks and its words.

    uv run python .ci/sciworld_table.py [--tasks-only]

To be run when the package `scienceworld` has a new version. About ten minutes.
"""

import importlib.util
import json
import re
import string
import sys
from pathlib import Path

from agentgym_sciworld.environment import DEFAULT_JAVA_OPTIONS
from agentgym_sciworld.simulator import Simulator, World

FOLDER = Path(__file__).parents[1] / "plugins/agentgym-sciworld/src/agentgym_sciworld"
MOST_LOADS = 60
"""Variations of each task whose objects are looked at."""
NUM_PLAYED = 2
"""Variations of each task that are played."""


def table(simulator: Simulator) -> list[dict[str, object]]:
    package = importlib.util.find_spec("scienceworld")
    known = json.loads((Path(package.origin).parent / "tasks.json").read_text(encoding="utf-8"))
    assert sorted(task["task_name"] for task in known) == sorted(simulator.names())
    rows = []
    for task in known:
        found = simulator.variations(task["task_name"])
        assert found["train"] + found["dev"] + found["test"] == found["all"], task
        sizes = {split: len(found[split]) for split in ("train", "dev", "test")}
        rows.append({"id": task["task_id"], "name": task["task_name"], **sizes})
    return rows


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+|[^\w\s]", text))


def words(simulator: Simulator, rows: list[dict[str, object]]) -> list[str]:
    found = {*string.ascii_letters, *",.:;()?'-"}
    for row in rows:
        name = row["name"]
        number = row["train"] + row["dev"] + row["test"]
        for variation in range(0, number, -(-number // MOST_LOADS)):
            found |= words_of(simulator.load(World(name, variation)))
            for thing in json.loads(simulator.referents()).values():
                found |= words_of(" ".join(thing["referents"]))
        for variation in range(0, number, -(-number // NUM_PLAYED)):
            world = World(name, variation)
            path = simulator.gold_path(world)
            simulator.load(world)
            for action in ("help", "inventory", "open door", "zzz", "eat agent", *path):
                found |= words_of(action) | words_of(simulator.step(action)[0])
        print(name, len(found), flush=True)
    found |= {word.lower() for word in found}
    return sorted(found)


def main() -> None:
    simulator = Simulator(None, DEFAULT_JAVA_OPTIONS)
    rows = table(simulator)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    (FOLDER / "tasks.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    if "--tasks-only" not in sys.argv:
        text = "\n".join(words(simulator, rows)) + "\n"
        (FOLDER / "words.txt").write_text(text, encoding="utf-8")
    simulator.stop()


if __name__ == "__main__":
    main()
