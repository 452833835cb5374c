"""The expert over every question of SearchQA's small world: each must be answered and be shown.

Seconds on one core: python .ci/searchqa_experts.py
"""

import asyncio
import sys
from collections import Counter

from agentgym_searchqa.environment import SearchQA
from agentgym_searchqa.verdict import normalized

SPLITS = ("test", "train")


async def episode(environment, task) -> tuple[bool, bool, int]:
    """Whether the expert was right, whether a passage showed the answer, and its actions."""
    session = await environment.open()
    observation = await session.reset(task, 0)
    shown, num_actions = "", 0
    while not observation.terminated:
        action = await session.expert_action()
        observation = await session.step(action)
        shown = observation.text if action.startswith("<search>") else shown
        num_actions += 1
    answer = normalized(task.data["answers"][0])
    return observation.success, answer in normalized(shown), num_actions


async def main() -> None:
    missed = 0
    print(f"{'split':6} {'set':8} {'passages':>8} {'tasks':>6} {'success':>8} {'shown':>6} actions")
    for split in SPLITS:
        for num_passages in (3, 2, 1):
            environment = SearchQA(num_passages=num_passages)
            counts: dict[str, Counter[str]] = {}
            for task in environment.tasks(split):
                right, shown, num_actions = await episode(environment, task)
                counts.setdefault(task.category, Counter()).update(
                    tasks=1, right=right, shown=shown, actions=num_actions
                )
            for name, count in counts.items():
                total = count["tasks"]
                print(
                    f"{split:6} {name:8} {num_passages:8} {total:6} {count['right'] / total:8.3f} "
                    f"{count['shown'] / total:6.3f} {count['actions'] / total:.1f}"
                )
                missed += total - count["right"]
                if num_passages == 3:
                    missed += total - count["shown"]
    if missed:
        sys.exit(f"{missed} questions were not answered, or what answers them was not shown")


if __name__ == "__main__":
    asyncio.run(main())
