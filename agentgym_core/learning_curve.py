"""learning.png: success at the fixed evaluation horizon, reward and the training horizon."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym_core.metrics import Row


def plot_learning(rows: Sequence[Row], path: Path, title: str) -> bool:
    """Draw the last stage that played episodes.

    Returns:
        Whether there was one; without, nothing is written.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; the message says how to get it.
    """
    stages = [row["stage"] for row in rows if "horizon" in row]
    if not stages:
        return False
    stage = stages[-1]
    try:
        import matplotlib.figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'learning.png needs matplotlib: pip install "agentgym-core[plot]"'
        ) from error
    steps = [row for row in rows if row["stage"] == stage and "horizon" in row]
    evaluations = _evaluations(rows, stage)
    figure: Any = matplotlib.figure.Figure(figsize=(7, 7.5), layout="constrained")
    success, reward, horizon = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 1])
    x = [row["step"] for row in steps]
    for sampling, points in evaluations.items():
        at = [row["step"] for row in points]
        success.plot(at, [row["success"] for row in points], marker="o", label=sampling)
        low, high = ([row[f"success_{end}"] for row in points] for end in ("low", "high"))
        success.fill_between(at, low, high, alpha=0.15)
    demonstrators = [row for row in rows if row.get("sampling") == "demonstrator"]
    for row in demonstrators[-1:]:  # the one whom the policy imitated last
        label = f"demonstrator of {row['stage']}"
        success.axhline(row["success"], linestyle="--", color="gray", label=label)
    success.set(ylabel="success, held-out tasks", ylim=(0, 1), title=title)
    if success.get_legend_handles_labels()[0]:
        success.legend(loc="lower right")
    reward.plot(x, [row.get("reward") for row in steps], label="reward")
    reward.plot(x, [row.get("horizon_cut") for row in steps], label="cut by the horizon")
    reward.set(ylabel="training episodes, mean")
    reward.legend(loc="upper left")
    horizon.step(x, [row["horizon"] for row in steps], where="mid")
    horizon.set(ylabel="horizon", xlabel=f"{stage} step", ylim=(0, None))
    figure.savefig(path, dpi=110)
    return True


def _evaluations(rows: Sequence[Row], stage: str) -> dict[str, list[dict[str, Any]]]:
    """By sampling: the stage's evaluations; without one at its start, the last before it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["phase"] != "evaluation" or row["sampling"] == "demonstrator":
            continue
        points = found.setdefault(row["sampling"], [])
        if row["stage"] == stage:
            points.append(dict(row))
        else:
            points[:] = [{**row, "step": 0}]
    return {
        sampling: [p for i, p in enumerate(points) if i == 0 or p["step"] != points[i - 1]["step"]]
        for sampling, points in found.items()
    }
