"""A run: its stages in order, each from its checkpoint or from its start."""

import asyncio
import importlib.metadata
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from agentgym_core import checkpoint, hf
from agentgym_core.config import Resume, RunConfig, StageConfig, resolved
from agentgym_core.contract import starting, tasks_of
from agentgym_core.errors import (
    CheckpointError,
    Interrupted,
    NumericalError,
    Stalled,
)
from agentgym_core.evaluate import Evaluation, evaluation_orders, sampling_name, summarize
from agentgym_core.files import new_folder, remove_leftovers, write_json, write_json_lines
from agentgym_core.handler import ModelPolicy
from agentgym_core.lock import locked
from agentgym_core.metrics import MetricsLog
from agentgym_core.model import ModelConfig
from agentgym_core.player import Player
from agentgym_core.protocols import (
    AdvantageEstimator,
    Loss,
    RunInfo,
    Sampler,
    StartContext,
    StepReport,
    TaskPool,
    Trainer,
)
from agentgym_core.records import group_rows
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table
from agentgym_core.stopping import stopping
from agentgym_core.tracking import Report, tracking
from agentgym_core.types import Sampling
from agentgym_core.watchdog import watched


@attrs.define(kw_only=True)
class Run:
    """One stage, live: what an algorithm's `train_step` works with."""

    config: StageConfig
    folder: Path
    """Of the whole run, such as `runs/quickstart`."""
    seed: int
    trainer: Trainer
    sampler: Sampler
    renderer: Renderer
    player: Player
    advantage: AdvantageEstimator | None
    log: MetricsLog
    report: Report
    prepared: Any = None
    published: int | None = attrs.field(default=None, init=False)

    async def publish(self, version: int) -> None:
        """The engine samples from the trainer's current weights from now on."""
        await self.sampler.load(self.trainer.weights(), version)
        self.published = version

    def beating(self, loss: Loss) -> Loss:
        """The same loss; each of its calls tells the watchdog that learning goes on."""
        return self.player.table.progress.beating(loss)

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row to metrics.jsonl."""
        row = {"stage": self.config.name, **row}
        self.log.append(row)
        self.report(row)

    def write_evaluation(self, step: int, evaluation: Evaluation, seconds: float) -> None:
        """Add an evaluation to metrics.jsonl."""
        self.write(
            {
                "phase": "evaluation",
                "step": step,
                "sampling": evaluation.sampling,
                **evaluation.metrics(),
                "seconds": seconds,
            }
        )

    def was_evaluated(self, step: int, sampling: str) -> bool:
        """Whether metrics.jsonl holds that evaluation."""
        keys = {"stage": self.config.name, "phase": "evaluation", "step": step}
        return bool(self.log.find(**keys, sampling=sampling))

    def best(self) -> dict[str, Any] | None:
        """The stage's best evaluation at the first of its temperatures; see `MetricsLog.best`."""
        settings = self.config.evaluation
        if settings is None:
            return None
        return self.log.best(self.config.name, sampling_name(settings.temperatures[0]))

    def evaluation_orders(self, temperature: float) -> list[Attempts]:
        """What every evaluation of this stage plays."""
        assert self.config.evaluation is not None
        environments = self.player.table.environments
        return evaluation_orders(environments, self.config.evaluation, temperature)

    def record(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Write episodes to `rollouts/<stage>/<name>.jsonl`."""
        write_json_lines(self.folder / "rollouts" / self.config.name / f"{name}.jsonl", rows)


async def train(config: RunConfig, report: Report, resume: Resume = "auto") -> Path:
    """Run all stages; a run directory that exists with the same configuration goes on.

    Returns:
        The run directory.

    Raises:
        ConfigError: the directory holds a run with another configuration, or `resume` refuses.
        RunLockedError: another process works on it.
        CheckpointError: something cannot be written, or there is no whole checkpoint left.
        NumericalError: a loss or gradient was not finite.
        Stalled: nothing made progress for `training.stall_seconds`.
        Interrupted: it was stopped by a signal, and has saved its state.
    """
    config.check_resume(resume)
    with locked(config.folder):
        folder = config.open_folder()
        _remove_leftovers(folder)
        _write_versions(folder / "versions.json")
        trackers = [block.component for block in config.trackers]
        info = RunInfo(name=config.name, folder=folder, config=resolved(config))
        with tracking(trackers, info, report) as report:
            await _train_stages(config, folder, report)
    return folder


def _remove_leftovers(folder: Path) -> None:
    """What a kill left half-written: in the run directory, and where files come step by step."""
    inner = [folder / name for name in ("policies", "demonstrations")]
    by_stage = [*folder.glob("rollouts/*"), *folder.glob("checkpoints/*")]
    for place in [folder, *inner, *by_stage]:
        remove_leftovers(place)


async def _train_stages(config: RunConfig, folder: Path, report: Report) -> None:
    log = MetricsLog(folder / "metrics.jsonl")
    base = _base_model(config, folder)
    model = base
    for stage in config.stages:
        policy = folder / "policies" / stage.name
        if not policy.exists():
            start = base if stage.from_base else model
            await _run_stage(stage, folder, start, log, report)
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
        texts = [text for block in first.environments for text in block.component.corpus()]
        hf.build_scratch(first.model.scratch, texts, path, seed=first.seed)
    return attrs.evolve(first.model, path=str(path), scratch=None)


async def _run_stage(
    stage: StageConfig, folder: Path, model: ModelConfig, log: MetricsLog, report: Report
) -> None:
    needs = stage.algorithm.needs
    if stage.advantage is not None:
        needs |= stage.advantage.needs
    context = StartContext(
        model=model,
        seed=stage.seed,
        num_steps=stage.training.num_steps,
        temperature=stage.algorithm.training_temperature(stage.engine.temperature),
        needs=needs,
    )
    with starting("backend"):
        trainer = stage.backend.start(context)
    try:
        with starting("engine"):
            sampler = await stage.engine.start(context)
        try:
            run = _assemble(stage, folder, model, trainer, sampler, log, report)
            with stopping(run.player.stop):
                await _train_watched(run)
        finally:
            await sampler.close()
    finally:
        trainer.close()


def _assemble(
    stage: StageConfig,
    folder: Path,
    model: ModelConfig,
    trainer: Trainer,
    sampler: Sampler,
    log: MetricsLog,
    report: Report,
) -> Run:
    with starting("model"):
        renderer = Renderer(hf.load_tokenizer(model))
    table = Table(
        environments={block.name: block.component for block in stage.environments},
        agent=stage.agent,
        policy=ModelPolicy(renderer=renderer, sampler=sampler, limits=stage.limits),
        rewards=stage.reward,
        max_retries=stage.training.max_retries,
        max_call_seconds=stage.limits.max_call_seconds,
    )
    pools = [
        TaskPool(
            environment=block.name,
            weight=block.weight,
            tasks=tasks_of(block.component, block.split),
        )
        for block in stage.environments
    ]
    engine = stage.engine
    player = Player(
        table=table,
        pools=tuple(pools),
        tasks=stage.tasks,
        rounds=stage.rounds,
        training=stage.training,
        sampling=Sampling(temperature=engine.temperature, top_p=engine.top_p, top_k=engine.top_k),
        seed=stage.seed,
    )
    return Run(
        config=stage,
        folder=folder,
        seed=stage.seed,
        trainer=trainer,
        sampler=sampler,
        renderer=renderer,
        player=player,
        advantage=stage.advantage,
        log=log,
        report=report,
    )


async def _train_watched(run: Run) -> None:
    """Raises `Stalled` where nothing makes progress any more; nothing is saved then."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    reasons: list[str] = []

    def stop(reason: str) -> None:
        reasons.append(reason)
        loop.call_soon_threadsafe(task.cancel)

    try:
        with watched(run.player.table.progress, run.config.training.stall_seconds, stop):
            await _train(run)
    except asyncio.CancelledError:
        if not reasons:
            raise
        raise Stalled(
            f"{reasons[0]}. The run stopped there; the same command goes on from its last "
            "checkpoint. If that is how long it takes, raise training.stall_seconds"
        ) from None


async def _train(run: Run) -> None:
    """The loop of one stage. Whatever step it is stopped at, it goes on from there."""
    checkpoints = run.folder / "checkpoints" / run.config.name
    training = run.config.training
    step = _resume(run, checkpoints)
    with starting("algorithm"):
        run.prepared = await run.config.algorithm.prepare(run)
    await run.publish(step)
    saved = step
    try:
        while True:
            await _evaluate_if_due(run, step)
            if step == training.num_steps:
                break
            await run.player.go_on()
            await _step(run, step)
            step += 1
            if training.save_every and step % training.save_every == 0:
                _save(run, checkpoints, step)
                saved = step
    except Interrupted:
        if step > saved:
            _save(run, checkpoints, step)
        raise
    if step > saved:
        _save(run, checkpoints, step)
    try:
        with new_folder(run.folder / "policies" / run.config.name) as aside:
            run.trainer.export(aside)
    except CheckpointError:
        raise
    except Exception as error:  # libraries that write tensors have errors of their own
        raise CheckpointError(f"cannot write the policy of {run.config.name}: {error}") from error


async def _step(run: Run, step: int) -> None:
    start = time.perf_counter()
    name = f"step {step + 1} of {run.config.name}"
    try:
        with run.player.table.progress.waiting(f"{name}, which scores or updates"):
            report = await run.config.algorithm.train_step(run, step)
    except FloatingPointError as error:
        raise NumericalError(
            f"{name}: {error}. Nothing of that step is kept: the run goes on from its last "
            "checkpoint, or with other settings through --fork"
        ) from error
    seconds = time.perf_counter() - start
    if report.groups:
        rows = group_rows(report.groups, report.sequences, report.advantages)
        run.record(f"step-{step + 1:06d}", rows)
    run.write(_step_row(run, report, seconds))
    run.player.advance(report)


def _step_row(run: Run, report: StepReport, seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {"phase": "train", "step": report.step + 1}
    if report.groups:
        row["horizon"] = run.player.horizon(report.step)
        tokens = sum(e.num_tokens for group in report.groups for e in group.episodes)
        row["tokens_per_second"] = tokens / seconds
    return {**row, **report.metrics, "seconds": seconds}


async def _evaluate_if_due(run: Run, step: int) -> None:
    """Evaluate when the settings say so, and what metrics.jsonl does not hold yet."""
    settings = run.config.evaluation
    if settings is None:
        return
    last = run.config.training.num_steps
    due = settings.every > 0 and step % settings.every == 0 and 0 < step < last
    if not (due or (step == 0 and settings.at_start) or (step == last and settings.at_end)):
        return
    for temperature in settings.temperatures:
        if run.was_evaluated(step, sampling_name(temperature)):
            continue
        if run.published != step:
            await run.publish(step)
        start = time.perf_counter()
        groups = await run.player.play(run.evaluation_orders(temperature))
        evaluation = summarize(groups, sampling_name(temperature))
        run.record(f"evaluation-{step:06d}-{evaluation.sampling}", group_rows(groups))
        run.write_evaluation(step, evaluation, time.perf_counter() - start)


def _resume(run: Run, checkpoints: Path) -> int:
    """Load the last checkpoint; returns the number of finished steps."""
    last = checkpoint.latest(checkpoints)
    if last is not None:
        run.trainer.load(last.folder)
        run.player.restore({**run.player.state(), **last.state})
    step = last.step if last is not None else 0
    run.log.forget_after(run.config.name, step if last is not None else -1)
    return step


def _save(run: Run, checkpoints: Path, step: int) -> None:
    best = run.best()
    with run.player.table.progress.waiting(f"the checkpoint of step {step}"):
        checkpoint.save(checkpoints, step, {**run.player.state(), "best": best}, run.trainer)
    keep = run.config.training.keep_checkpoints
    if keep is not None:
        checkpoint.keep_last(checkpoints, keep, best["step"] if best else None)
