"""The simulator's own solutions, played through sessions: every one must succeed.

    uv run python .ci/sciworld_experts.py [--variations N] [--simplifications easy]

Plays N variations of every split of all 30 tasks, the first ones if N is 1, otherwise spread over
the split. Fails unless every episode succeeds with rewards that add up to 1.
"""

import argparse
import asyncio
import sys
import time

from agentgym_sciworld.environment import SciWorld
from agentgym_sciworld.tasks import make_task, task_kinds

SPLITS = ("train", "dev", "test")


async def play(session, task):
    observation = await session.reset(task, 0)
    rewards, steps = observation.reward, 0
    while not (observation.terminated or observation.truncated):
        action = await session.expert_action()
        if action is None:
            break
        observation = await session.step(action)
        rewards += observation.reward
        steps += 1
    return observation.success and observation.terminated and abs(rewards - 1) < 1e-9, steps


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variations", type=int, default=1)
    parser.add_argument("--simplifications", nargs="*", default=[])
    arguments = parser.parse_args()
    environment = SciWorld(simplifications=arguments.simplifications)
    session = await environment.open()
    failed = 0
    print(f"{'task':50}{'solved':>8}{'actions':>12}{'seconds':>9}")
    for name, kind in task_kinds().items():
        start, solved, lengths = time.perf_counter(), 0, []
        for split in SPLITS:
            found = kind.variations(split)
            for variation in found[:: max(1, len(found) // arguments.variations)][
                : arguments.variations
            ]:
                success, steps = await play(session, make_task(name, variation))
                solved += success
                lengths.append(steps)
                if not success:
                    print(f"  {name} {variation} failed after {steps} actions")
        failed += len(lengths) - solved
        seconds = time.perf_counter() - start
        share, span = f"{solved}/{len(lengths)}", f"{min(lengths)}-{max(lengths)}"
        print(f"{name:50}{share:>8}{span:>12}{seconds:>9.1f}", flush=True)
    await session.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    asyncio.run(main())
