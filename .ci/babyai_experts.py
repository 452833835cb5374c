"""BabyAI's expert in every level: a table of levels and seeds, which fails below the bar.

At least 36 of the 40 levels must be solved with each of the seeds, of which there are five. With a
hundred it takes a minute on one core: python .ci/babyai_experts.py 100
"""

import asyncio
import sys
import time

from agentgym_babyai.environment import BabyAI
from agentgym_babyai.levels import LEVELS
from agentgym_babyai.tasks import make_task

BAR = 36
MOST_ACTIONS = 500


async def play(session, level, seed: int) -> int | None:
    """Actions that it took; None if the expert failed."""
    observation = await session.reset(make_task(level, seed), 0)
    for actions in range(MOST_ACTIONS):
        if observation.terminated or observation.truncated:
            return actions if observation.success else None
        action = await session.expert_action()
        if action is None:
            return None
        observation = await session.step(action)
    return None


async def main(num_seeds: int) -> int:
    """The number of levels that were solved with every seed."""
    session = await BabyAI().open()
    solved, episodes = 0, 0
    for level in LEVELS:
        start = time.perf_counter()
        counts = [await play(session, level, seed) for seed in range(num_seeds)]
        seconds = time.perf_counter() - start
        won = [count for count in counts if count is not None]
        episodes += len(won)
        solved += len(won) == num_seeds
        failed = [f"seed {seed} failed" for seed, count in enumerate(counts) if count is None]
        shown = " ".join(["-" if count is None else f"{count:3}" for count in counts[:10]] + failed)
        name = f"{level.number:2} {level.name}"
        print(
            f"{name:24} {len(won):3}/{num_seeds} {seconds:5.1f} s  {shown}",
            flush=True,
        )
    print(f"{solved} of {len(LEVELS)} levels with every seed, {episodes} episodes")
    return solved


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 5)) < BAR)
