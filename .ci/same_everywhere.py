"""Every environment gives the same observations in any process, and with others beside it.

Eight episodes are played one after the other; their actions are then taken again in three fresh
interpreters with other hash seeds, all eight at once: python .ci/same_everywhere.py [NAME ...]
"""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

from agentgym_core.catalog import Catalog
from agentgym_core.environments import environment_block
from agentgym_core.serving.host import HostSettings
from agentgym_core.serving.places import place_of
from agentgym_core.serving.protocol import observation_to_json

NAMES = ("textcraft", "babyai", "sciworld", "searchqa")
NUM, NUM_ACTIONS = 8, 25


def environment(name: str) -> Any:
    return environment_block(name, "environment", Catalog.installed()).component


def chosen_tasks(world: Any) -> list[Any]:
    tasks = world.tasks("test")
    return [tasks[index * len(tasks) // NUM] for index in range(NUM)]


async def follow(place: Any, task: Any, actions: list[str] | None) -> tuple[list[str], list[Any]]:
    """Take the actions, or those of the expert with nonsense between them."""
    session = await place.open()
    taken: list[str] = []
    seen = [await session.reset(task, 7)]
    try:
        while len(taken) < (NUM_ACTIONS if actions is None else len(actions)):
            if seen[-1].terminated or seen[-1].truncated:
                break
            if actions is None:
                action = "look around" if len(taken) % 5 == 3 else await session.expert_action()
            else:
                action = actions[len(taken)]
            if action is None:
                break
            taken.append(action)
            seen.append(await session.step(action))
    finally:
        await session.close()
    return taken, [observation_to_json(each) for each in seen]


async def play(name: str, recorded: list[list[str]] | None) -> list[tuple[list[str], list[Any]]]:
    world = environment(name)
    place = place_of(world, HostSettings(workers=NUM), 120.0)
    async with place:
        tasks = chosen_tasks(world)
        if recorded is None:
            return [await follow(place, task, None) for task in tasks]
        together = (follow(place, *pair) for pair in zip(tasks, recorded, strict=True))
        return await asyncio.gather(*together)


def in_fresh_interpreter(name: str, hash_seed: str, recorded: Any) -> list[Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--play", name],
        input=json.dumps(recorded),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def digest(episodes: list[Any]) -> str:
    seen = [episode[1] for episode in episodes]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def main() -> None:
    if sys.argv[1:2] == ["--play"]:
        print(json.dumps(asyncio.run(play(sys.argv[2], json.load(sys.stdin)))))
        return
    differ: list[str] = []
    for name in sys.argv[1:] or NAMES:
        alone = in_fresh_interpreter(name, "0", None)
        actions = [taken for taken, _ in alone]
        found = {"alone": digest(alone)}
        for hash_seed in ("0", "1", "2"):
            found[f"seed {hash_seed}"] = digest(in_fresh_interpreter(name, hash_seed, actions))
        num = sum(len(seen) for _, seen in alone)
        print(f"{name:10} {NUM} episodes, {num} observations: {found}", flush=True)
        if len(set(found.values())) > 1:
            differ.append(name)
    sys.exit(f"observations differ: {', '.join(differ)}" if differ else 0)


if __name__ == "__main__":
    main()
