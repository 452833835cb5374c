"""A run: its stages in order, each from its checkpoint or from its start."""

import importlib.metadata
import platform
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from agentgym_core import hf
from agentgym_core.config import Resume, RunConfig, StageConfig, resolved
from agentgym_core.contract import corpus_of, starting, tasks_of
from agentgym_core.files import remove_leftovers, write_json
from agentgym_core.handler import ModelPolicy, Policy
from agentgym_core.lock import locked
from agentgym_core.loop import train_stage
from agentgym_core.metrics import MetricsLog
from agentgym_core.model import ModelConfig
from agentgym_core.player import Player, table_of
from agentgym_core.protocols import Opens, RunInfo, StartContext, TaskPool
from agentgym_core.ranks import ALONE, Ranks, on_first
from agentgym_core.renderer import Renderer
from agentgym_core.run import Run
from agentgym_core.run_directory import check_resume, check_same, open_folder
from agentgym_core.serving.places import places
from agentgym_core.stopping import stopping
from agentgym_core.tracking import Report, tracking
from agentgym_core.types import Sampling


async def train(
    config: RunConfig, report: Report, resume: Resume = "auto", ranks: Ranks = ALONE
) -> Path:
    """Run all stages; a run directory that exists with the same configuration goes on.

    Several ranks call it alike; the first alone reports, and writes to the run directory.

    Returns:
        The run directory.

    Raises:
        ConfigError: the directory holds a run with another configuration, or `resume` refuses.
        RunLockedError: another process works on it.
        RankError: another rank is gone, or was given another configuration.
        CheckpointError: something cannot be written, or there is no whole checkpoint left.
        NumericalError: a loss or gradient was not finite.
        Stalled: nothing made progress for `training.stall_seconds`.
        Interrupted: it was stopped by a signal, and has saved its state.
    """
    check_same(ranks.gather(resolved(config)))
    if ranks.rank == 0:
        with _opened(config, report, resume) as report:
            await _train_stages(config, report, ranks)
    else:
        await _train_stages(config, lambda _: None, ranks)
    return config.folder


@contextmanager
def connected(config: RunConfig) -> Generator[Ranks]:
    """This process among those that a launcher started for the run.

    Raises:
        ConfigError: they do not find each other.
    """
    with starting("backend"):
        ranks = config.stages[0].backend.connect()
    try:
        yield ranks
    finally:
        ranks.close()


@contextmanager
def _opened(config: RunConfig, report: Report, resume: Resume) -> Generator[Report]:
    """Take hold of the run directory, as the first rank does for all."""
    check_resume(config, resume)
    with locked(config.folder):
        folder = open_folder(config)
        _remove_leftovers(folder)
        _write_versions(folder / "versions.json")
        trackers = [block.component for block in config.trackers]
        info = RunInfo(name=config.name, folder=folder, config=resolved(config))
        with tracking(trackers, info, report) as report:
            yield report


def _remove_leftovers(folder: Path) -> None:
    """What a kill left half-written: in the run directory, and where files come step by step."""
    inner = [folder / name for name in ("policies", "demonstrations")]
    by_stage = [*folder.glob("rollouts/*"), *folder.glob("checkpoints/*")]
    for place in [folder, *inner, *by_stage]:
        remove_leftovers(place)


async def _train_stages(config: RunConfig, report: Report, ranks: Ranks) -> None:
    folder = config.folder
    log = MetricsLog.shared(folder / "metrics.jsonl", ranks)
    base = on_first(ranks, lambda: _base_model(config, folder))
    model = base
    for stage in config.stages:
        policy = folder / "policies" / stage.name
        if not on_first(ranks, policy.exists):
            start = base if stage.from_base else model
            await _run_stage(stage, folder, start, log, report, ranks)
        model = ModelConfig(
            path=str(policy),
            attn_implementation=base.attn_implementation,
            trust_remote_code=base.trust_remote_code,
        )


def _write_versions(path: Path) -> None:
    """What the run was first started with: Python and every installed package."""
    if not path.exists():
        packages = {found.name: found.version for found in importlib.metadata.distributions()}
        write_json(path, {"python": platform.python_version(), **dict(sorted(packages.items()))})


def _base_model(config: RunConfig, folder: Path) -> ModelConfig:
    """The model to start from; one from scratch is built on the first call."""
    first = config.stages[0]
    if first.model.scratch is None:
        return first.model
    path = folder / "model"
    if not path.exists():
        texts = [text for block in first.environments for text in corpus_of(block.component)]
        with starting("model.scratch"):
            hf.build_scratch(first.model.scratch, texts, path, seed=first.seed)
    return attrs.evolve(first.model, path=str(path), scratch=None)


async def _run_stage(
    stage: StageConfig,
    folder: Path,
    model: ModelConfig,
    log: MetricsLog,
    report: Report,
    ranks: Ranks,
) -> None:
    with starting("tasks"):
        stage.tasks.initial_state()  # reads its file, if it has one
    with starting("algorithm"):
        stage.algorithm.check_files()
    needs = stage.algorithm.needs
    if stage.advantage is not None:
        needs |= stage.advantage.needs
    context = StartContext(
        model=model,
        seed=stage.seed,
        num_steps=stage.training.num_steps,
        temperature=stage.algorithm.training_temperature(stage.engine.temperature),
        needs=needs,
        ranks=ranks,
    )
    with starting("backend"):
        trainer = stage.backend.start(context)
    try:
        with starting("engine"):
            sampler = await stage.engine.start(context)
        try:
            with starting("model"):
                renderer = Renderer(hf.load_tokenizer(model))
            policy = ModelPolicy(renderer=renderer, sampler=sampler, limits=stage.limits)
            async with places(stage.environments, stage.limits.max_call_seconds) as opens:
                player = _player(stage, policy, opens, ranks)
                run = Run(
                    config=stage,
                    folder=folder,
                    seed=stage.seed,
                    ranks=ranks,
                    trainer=trainer,
                    sampler=sampler,
                    renderer=renderer,
                    player=player,
                    advantage=stage.advantage,
                    log=log,
                    report=report,
                )
                with stopping(player.stop, several=ranks.size > 1):
                    await train_stage(run)
        finally:
            await sampler.close()
    finally:
        trainer.close()


def _player(stage: StageConfig, policy: Policy, opens: Mapping[str, Opens], ranks: Ranks) -> Player:
    pools = [
        TaskPool(
            environment=block.name,
            weight=block.weight,
            tasks=tasks_of(block.component, block.split),
        )
        for block in stage.environments
    ]
    engine = stage.engine
    return Player(
        table=table_of(stage, policy, opens),
        pools=tuple(pools),
        tasks=stage.tasks,
        rounds=stage.rounds,
        training=stage.training,
        sampling=Sampling(temperature=engine.temperature, top_p=engine.top_p, top_k=engine.top_k),
        seed=stage.seed,
        ranks=ranks,
    )
