"""Evaluation: success with its uncertainty, at a horizon and seeds of its own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from agentgym_core.contract import tasks_of
from agentgym_core.protocols import Environment
from agentgym_core.rollout import Attempts
from agentgym_core.seeds import derive_seed
from agentgym_core.settings import EvaluationConfig
from agentgym_core.statistics import pass_at_k, wilson_interval
from agentgym_core.types import Episode, Group, Sampling, Task


@attrs.frozen(kw_only=True)
class Rate:
    """A success rate over tasks, of each episode's first attempt.

    The interval counts tasks, not episodes: attempts at one task are not independent.
    """

    success: float
    low: float
    high: float
    num_tasks: int


@attrs.frozen(kw_only=True)
class Evaluation:
    """What one evaluation found."""

    sampling: str
    """`greedy`, or the temperature, such as `t1.0`."""
    overall: Rate
    categories: Mapping[str, Rate]
    pass_at: Mapping[int, float]
    """pass@k, unbiased (arXiv 2107.03374), for k up to the number of samples."""
    reward: float
    rounds: float
    success_best: float
    """The same where any attempt counts, over tasks. More attempts than one are made on the
    environment's verdict, so this is no success rate."""
    attempts: float
    """Mean number of attempts."""
    endings: Mapping[str, int]
    num_episodes: int
    num_dropped: int

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return attrs.asdict(self)

    def metrics(self) -> dict[str, float]:
        """The flat part, for metrics.jsonl."""
        return {
            "success": self.overall.success,
            "success_low": self.overall.low,
            "success_high": self.overall.high,
            "success_best": self.success_best,
            "attempts": self.attempts,
            "reward": self.reward,
            "rounds": self.rounds,
            "episodes": self.num_episodes,
            "dropped": self.num_dropped,
        }


def choose_tasks(
    environment: Environment, split: str, num_tasks: int | None, seed: int
) -> list[Task]:
    """A seeded sample of a split, the same at every evaluation; all of it without `num_tasks`."""
    tasks = list(tasks_of(environment, split))
    if num_tasks is None or num_tasks >= len(tasks):
        return tasks
    order = np.random.default_rng(derive_seed(seed, "evaluation", split)).permutation(len(tasks))
    return [tasks[index] for index in sorted(order[:num_tasks])]


def sampling_name(temperature: float) -> str:
    """Temperature 0 is called greedy."""
    return "greedy" if temperature == 0 else f"t{temperature:g}"


def evaluation_orders(
    environments: Mapping[str, Environment], settings: EvaluationConfig, temperature: float
) -> list[Attempts]:
    """What an evaluation plays: the same tasks, worlds and sampling seeds every time."""
    sampling = Sampling(temperature=temperature, top_p=settings.top_p, top_k=settings.top_k)
    return [
        Attempts(
            environment=name,
            task=task,
            num=settings.num_samples,
            max_rounds=settings.max_rounds,
            sampling=sampling,
            seed=derive_seed(settings.seed, "evaluation", name, task.id),
        )
        for name, environment in environments.items()
        for task in choose_tasks(environment, settings.split, settings.num_tasks, settings.seed)
    ]


def summarize(groups: Sequence[Group], sampling: str) -> Evaluation:
    """Success over tasks, whole and by category (`<environment>/<category>`)."""
    played = [group for group in groups if group.episodes]
    episodes = [episode for group in played for episode in group.episodes]
    by_category: dict[str, list[Group]] = {}
    for group in played:
        name = f"{group.environment}/{group.task.category}".rstrip("/")
        by_category.setdefault(name, []).append(group)
    most = min((len(group.episodes) for group in played), default=0)
    return Evaluation(
        sampling=sampling,
        overall=_rate(played),
        categories={name: _rate(by_category[name]) for name in sorted(by_category)},
        pass_at={k: _mean([_pass_at(group, k) for group in played]) for k in range(1, most + 1)},
        reward=_mean([episode.reward for episode in episodes]),
        rounds=_mean([float(episode.num_rounds) for episode in episodes]),
        success_best=_mean([_mean([e.success_best for e in group.episodes]) for group in played]),
        attempts=_mean([float(episode.num_attempts) for episode in episodes]),
        endings=_count_endings(episodes),
        num_episodes=len(episodes),
        num_dropped=sum(group.num_dropped for group in groups),
    )


def format_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Success with its 95% interval, a line for each label and category.

    Where an agent tried again, one more line says what its attempts reached together.
    """
    lines: list[str] = []
    for label, evaluation in evaluations.items():
        rates = {label: evaluation.overall}
        if len(evaluation.categories) > 1:
            rates |= {f"  {name}": rate for name, rate in evaluation.categories.items()}
        lines += [f"{name:<32} {format_rate(rate)}" for name, rate in rates.items()]
        if evaluation.attempts > 1:
            lines.append(
                f"{'  best of its attempts':<32} {evaluation.success_best:.3f}, with "
                f"{evaluation.attempts:.2f} attempts an episode on the environment's verdict"
            )
    return "\n".join(lines)


def format_rate(rate: Rate) -> str:
    """Example: 0.870 [0.805, 0.915] of 150 tasks."""
    return f"{rate.success:.3f} [{rate.low:.3f}, {rate.high:.3f}] of {rate.num_tasks} tasks"


def write_evaluation(path: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """All figures as JSON."""
    data = {label: evaluation.to_json() for label, evaluation in evaluations.items()}
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _rate(groups: Sequence[Group]) -> Rate:
    success = _mean([_pass_at(group, 1) for group in groups])
    low, high = wilson_interval(success * len(groups), len(groups))
    return Rate(success=success, low=low, high=high, num_tasks=len(groups))


def _pass_at(group: Group, k: int) -> float:
    correct = sum(episode.success for episode in group.episodes)
    return pass_at_k(len(group.episodes), correct, k)


def _count_endings(episodes: Sequence[Episode]) -> dict[str, int]:
    endings = [episode.ending.value for episode in episodes]
    return {ending: endings.count(ending) for ending in sorted(set(endings))}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
