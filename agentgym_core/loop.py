"""The loop of one stage. Whatever step it is stopped at, it goes on from there."""

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_core import checkpoint
from agentgym_core.contract import starting
from agentgym_core.errors import CheckpointError, Interrupted, NumericalError, RankError, Stalled
from agentgym_core.evaluate import sampling_name, summarize
from agentgym_core.protocols import StepReport
from agentgym_core.ranks import on_first, write_together
from agentgym_core.records import group_rows
from agentgym_core.run import Run
from agentgym_core.watchdog import watched

log = logging.getLogger(__name__)


async def train_stage(run: Run) -> None:
    """Train all steps that are left, and write the policy.

    Raises:
        Stalled: nothing makes progress any more; nothing is saved then.
        Interrupted: a signal stopped it; it has saved its state.
    """
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
    _prune(run, checkpoints, run.best())  # a kill may have come between the last save and this
    policy = run.folder / "policies" / run.config.name
    try:
        write_together(run.ranks, policy, run.trainer.export)
    except (CheckpointError, RankError):
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
    run.advance(report)


def _step_row(run: Run, report: StepReport, seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {"phase": "train", "step": report.step + 1}
    if report.groups:
        row["horizon"] = horizon = run.player.horizon(report.step)
        if "success" in report.metrics:
            row[f"success_at_horizon/{horizon}"] = report.metrics["success"]
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
    last = on_first(run.ranks, lambda: checkpoint.latest(checkpoints))
    if last is not None:
        with starting(f"backend, from {last.folder}"):
            run.trainer.load(last.folder)
        run.restore(last.state)
        log.info("%s goes on from the checkpoint after step %d", run.config.name, last.step)
    step = last.step if last is not None else 0
    if step and not run.log.find(stage=run.config.name, phase="train", step=step):
        raise CheckpointError(
            f"{run.log.path} has no row for step {step} of {run.config.name}, whose checkpoint is "
            f"there. Bring the file back from a copy, or remove {checkpoints} to begin this stage "
            "again"
        )
    run.log.forget_after(run.config.name, step if last is not None else -1)
    return step


def _save(run: Run, checkpoints: Path, step: int) -> None:
    best = run.best()
    with run.player.table.progress.waiting(f"the checkpoint of step {step}"):
        state = {**run.state(), "best": best}
        checkpoint.save(checkpoints, step, state, run.trainer, run.ranks)
    _prune(run, checkpoints, best)


def _prune(run: Run, checkpoints: Path, best: Mapping[str, Any] | None) -> None:
    keep = run.config.training.keep_checkpoints
    if keep is not None and run.ranks.rank == 0:
        checkpoint.keep_last(checkpoints, keep, best["step"] if best else None)
