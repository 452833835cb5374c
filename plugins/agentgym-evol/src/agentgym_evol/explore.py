"""Exploration: AgentEvol's first half (AgentGym, arXiv 2406.04151).

Each step plays its groups with the policy as it stands, in all environments of the stage, and keeps
them in the run directory. Nothing is learned: the policy at the end is the one at the start. Stages
after it learn from the episodes: `evol`, or any algorithm whose `explored` names the stage.
"""

from typing import Any

import attrs

from agentgym_core.protocols import Algorithm, StepReport
from agentgym_core.statistics import episode_metrics


@attrs.frozen(kw_only=True)
class Explore(Algorithm):
    """Plays, and learns nothing."""

    def training_temperature(self, sampling_temperature: float) -> float:
        """Any: nothing is scored, so that greedy play is exploration, too."""
        del sampling_temperature
        return 1.0

    async def train_step(self, run: Any, step: int) -> StepReport:
        """The step's groups; the run loop writes their episodes to `rollouts/<stage>/`."""
        groups = await run.player.groups(step)
        await run.publish(step + 1)  # the same weights: a resumed run publishes under that number
        return StepReport(step=step, metrics=episode_metrics(groups), groups=groups)
