"""One stage of a run, live: what an algorithm's step works with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from agentgym_core.config import StageConfig
from agentgym_core.contract import calling
from agentgym_core.evaluate import Evaluation, evaluation_orders, sampling_name
from agentgym_core.files import write_json_lines
from agentgym_core.metrics import MetricsLog
from agentgym_core.player import Player
from agentgym_core.protocols import AdvantageEstimator, Loss, Sampler, State, StepReport, Trainer
from agentgym_core.ranks import ALONE, Ranks
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts
from agentgym_core.tracking import Report


@attrs.define(kw_only=True)
class Run:
    """One stage, live: what an algorithm's `train_step` works with."""

    config: StageConfig
    folder: Path
    """Of the whole run, such as `runs/quickstart`."""
    seed: int
    ranks: Ranks = ALONE
    trainer: Trainer
    sampler: Sampler
    renderer: Renderer
    player: Player
    advantage: AdvantageEstimator | None
    log: MetricsLog
    report: Report
    prepared: Any = None
    """What `Algorithm.prepare` returned."""
    algorithm_state: State = None
    published: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.algorithm_state = self.config.algorithm.initial_state()

    def advance(self, report: StepReport) -> None:
        """Let the schedules and the algorithm see what the step gave."""
        self.player.advance(report)
        algorithm = self.config.algorithm
        with calling(algorithm, "next_state"):
            self.algorithm_state = algorithm.next_state(self.algorithm_state, report)

    def state(self) -> dict[str, State]:
        """For the checkpoint."""
        return {**self.player.state(), "algorithm_state": self.algorithm_state}

    def restore(self, state: Mapping[str, State]) -> None:
        """From the checkpoint; what an older one lacks stays as it is."""
        whole = {**self.state(), **state}
        self.player.restore(whole)
        self.algorithm_state = whole["algorithm_state"]

    async def publish(self, version: int) -> None:
        """The engine samples from the trainer's current weights from now on."""
        await self.sampler.load(self.trainer.weights(), version)
        self.published = version

    def beating(self, loss: Loss) -> Loss:
        """The same loss; each of its calls tells the watchdog that learning goes on."""
        return self.player.table.progress.beating(loss)

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row to metrics.jsonl, which every rank knows and the first writes."""
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

    def record(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write episodes to `rollouts/<stage>/<name>.jsonl`."""
        self.keep(f"rollouts/{self.config.name}/{name}.jsonl", rows)

    def keep(self, path: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows to a file of the run directory; the first rank does."""
        if self.ranks.rank == 0:
            write_json_lines(self.folder / path, rows)
