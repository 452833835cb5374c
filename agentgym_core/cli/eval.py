"""`agentgym eval`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import attrs
import click

from agentgym_core import hf
from agentgym_core.catalog import Catalog
from agentgym_core.config import RunConfig, StageConfig, load_config
from agentgym_core.contract import starting
from agentgym_core.errors import ConfigError
from agentgym_core.evaluate import (
    Evaluation,
    evaluation_orders,
    format_table,
    sampling_name,
    summarize,
)
from agentgym_core.expert import ExpertPolicy
from agentgym_core.files import refuse_existing, write_json, write_json_lines
from agentgym_core.handler import ModelPolicy, Policy
from agentgym_core.model import ModelConfig
from agentgym_core.player import table_of
from agentgym_core.protocols import StartContext
from agentgym_core.records import group_rows
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import play_groups
from agentgym_core.serving.places import places
from agentgym_core.types import Group


@click.command(name="eval")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.argument("overrides", nargs=-1)
@click.option("--expert", is_flag=True, help="Play with the environment's expert, not the model.")
@click.option(
    "--policy",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a policy.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for evaluation.json."
)
@click.option("--overwrite", is_flag=True, help="Replace an evaluation.json that exists.")
def evaluate(
    path: Path,
    overrides: tuple[str, ...],
    expert: bool,
    policy: Path | None,
    out: Path | None,
    overwrite: bool,
) -> None:
    """Evaluate a policy: success with its 95% interval, for each category.

    PATH is a run directory, whose last policy is played, or a YAML file, whose `model` is. What is
    played stands in the `evaluation` block; OVERRIDES change it: evaluation.num_tasks=100.

    Writes evaluation.json, and every episode beside it.
    """
    config = load_config(
        path / "config.yaml" if path.is_dir() else path, overrides, Catalog.installed()
    )
    stage = config.stages[-1]
    if stage.evaluation is None:
        raise ConfigError("evaluation: required field missing, such as evaluation.max_rounds=20")
    folder = out or (path if path.is_dir() else config.folder)
    refuse_existing(folder / "evaluation.json", overwrite, "--out FOLDER")
    if expert:
        found = asyncio.run(_play(stage, ExpertPolicy(), ["expert"]))
    else:
        found = asyncio.run(_play_model(stage, _model(config, path, policy)))
    evaluations = {name: summarize(groups, name) for name, groups in found.items()}
    click.echo(format_table(evaluations))
    _write(folder, evaluations, found)
    click.echo(f"\nWritten to {folder / 'evaluation.json'}")


def _model(config: RunConfig, path: Path, policy: Path | None) -> ModelConfig:
    """The policy that was asked for, the run's last one, or the configuration's model."""
    model = config.stages[-1].model
    finished = [path / "policies" / stage.name for stage in config.stages]
    for folder in [policy] if policy else finished[::-1]:
        if folder.exists():
            return attrs.evolve(model, path=str(folder), scratch=None, gguf_file=None)
    if path.is_dir():
        raise ConfigError(f"{path} holds no finished policy: train it to the end of a stage first")
    if model.scratch is not None:
        raise ConfigError("model.scratch has nothing to evaluate: train it first, or give --policy")
    return model


async def _play_model(stage: StageConfig, model: ModelConfig) -> dict[str, tuple[Group, ...]]:
    assert stage.evaluation is not None
    with starting("model"):
        renderer = Renderer(hf.load_tokenizer(model))
    with starting("engine"):
        sampler = await stage.engine.start(StartContext(model=model, seed=stage.seed))
    try:
        policy = ModelPolicy(renderer=renderer, sampler=sampler, limits=stage.limits)
        return await _play(stage, policy, stage.evaluation.temperatures)
    finally:
        await sampler.close()


async def _play(
    stage: StageConfig, policy: Policy, samplings: Sequence[float | str]
) -> dict[str, tuple[Group, ...]]:
    """Groups of episodes by the name of the sampling."""
    assert stage.evaluation is not None
    found: dict[str, tuple[Group, ...]] = {}
    async with places(stage.environments, stage.limits.max_call_seconds) as opens:
        table = table_of(stage, policy, opens)
        for sampling in samplings:
            temperature = 1.0 if isinstance(sampling, str) else sampling
            name = sampling if isinstance(sampling, str) else sampling_name(sampling)
            orders = evaluation_orders(table.environments, stage.evaluation, temperature)
            found[name] = await play_groups(table, orders, stage.training.max_concurrent_episodes)
    return found


def _write(
    folder: Path, evaluations: dict[str, Evaluation], found: dict[str, tuple[Group, ...]]
) -> None:
    write_json(folder / "evaluation.json", {k: v.to_json() for k, v in evaluations.items()})
    for name, groups in found.items():
        write_json_lines(folder / f"evaluation-{name}.jsonl", group_rows(groups))
