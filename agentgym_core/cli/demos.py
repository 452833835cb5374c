"""`agentgym demos`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from agentgym_core.catalog import Catalog
from agentgym_core.contract import tasks_of
from agentgym_core.demonstrations import demonstration_row, expert_episodes
from agentgym_core.document import parse_overrides
from agentgym_core.environments import EnvironmentBlock, environment_block
from agentgym_core.expert import Demonstrator, ExpertPolicy
from agentgym_core.files import refuse_existing, write_json_lines
from agentgym_core.protocols import Agent, TaskPool
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.seeds import derive_seed
from agentgym_core.serving.places import places
from agentgym_core.structure import construct
from agentgym_core.types import Group, Sampling

_CALL_SECONDS = 300.0
"""As `limits.max_call_seconds` of a run."""


@click.command()
@click.argument("name")
@click.argument("options", nargs=-1)
@click.option("--split", default="train", show_default=True)
@click.option("--num", type=click.IntRange(1), default=100, show_default=True, help="Episodes.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demonstrations.jsonl"),
    show_default=True,
    help="JSONL file to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file, if it exists.")
@click.option("--agent", default="react", show_default=True, help="Whose prompts are used.")
@click.option("--max-rounds", type=click.IntRange(1), default=100, show_default=True)
@click.option(
    "--mistakes",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Probability of a random action, marked as not to be learned.",
)
@click.option("--seed", type=int, default=0, show_default=True)
def demos(
    name: str,
    options: tuple[str, ...],
    split: str,
    num: int,
    out: Path,
    overwrite: bool,
    agent: str,
    max_rounds: int,
    mistakes: float,
    seed: int,
) -> None:
    """Write episodes of an environment's expert, to imitate.

    OPTIONS are fields of the environment: num_distractors=3.
    """
    demonstrator = construct(Demonstrator, {"mistakes": mistakes}, "--mistakes")
    refuse_existing(out, overwrite, "--out FILE")
    catalog = Catalog.installed()
    block = environment_block({"use": name, **parse_overrides(options)}, name, catalog)
    pool = TaskPool(environment=name, weight=1.0, tasks=tasks_of(block.component, split))
    chosen = UniformTaskSampler().select([pool], num, step=0, seed=seed, state=None)
    orders = [
        Attempts(
            environment=name,
            task=task,
            num=1,
            max_rounds=max_rounds,
            sampling=Sampling(),
            seed=derive_seed(seed, "demonstrations", index),
        )
        for index, (_, task) in enumerate(chosen)
    ]
    talker = catalog.build("agent", agent, "agent")
    groups = asyncio.run(_play(block, talker, ExpertPolicy(demonstrator=demonstrator), orders))
    episodes = expert_episodes(groups)
    write_json_lines(out, [demonstration_row(episode) for episode in episodes])
    successful = sum(episode.success for episode in episodes)
    click.echo(f"{out}: {len(episodes)} episodes, {successful} judged successful by {name}")


async def _play(
    block: EnvironmentBlock, agent: Agent, policy: ExpertPolicy, orders: Sequence[Attempts]
) -> tuple[Group, ...]:
    async with places([block], _CALL_SECONDS) as opens:
        table = Table(
            environments={block.name: block.component}, places=opens, agent=agent, policy=policy
        )
        return await play_groups(table, orders, max_concurrent=32)
