"""Round schedulers in small: short, long, in stages, adaptive; three seeds, judged at one horizon.

    python benchmarks/horizons.py [--output runs/horizons] [--seeds 1 2 3] [--jobs 2]

Prints the tables of docs/horizons.md and draws its picture. About half an hour on two cores; a
study that was stopped goes on with the same command.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from study import ROOT, STUDIES, Planned, curve, draw, rows, table, train

SHORT, LONG = 5, 16
STAGES = "[5, 8, 16]"
SCHEDULES = {
    "fixed short": f"{{use: fixed, rounds: {SHORT}}}",
    "fixed long": f"{{use: fixed, rounds: {LONG}}}",
    "stepwise": f"{{use: scaling-inter, rounds: {STAGES}, steps_per_stage: 20}}",
    "adaptive": f"{{use: scaling-inter-adaptive, rounds: {STAGES}}}",
}


def planned(name: str, seed: int, output: Path) -> Planned:
    """The run of a schedule, from the start that its seed has."""
    start = output / f"start-{seed}" / "policies" / "imitate"
    overrides = (f"seed={seed}", f"model.path={start}", f"rounds={SCHEDULES[name]}")
    return Planned(folder_name(name, seed), STUDIES / "crafting_reinforce.yaml", overrides)


def folder_name(name: str, seed: int) -> str:
    """Of the run."""
    return f"{name.replace(' ', '-')}-{seed}"


def report(seeds: Sequence[int], output: Path) -> None:
    """Print the table, and draw success above the training horizon."""
    import matplotlib.figure

    folders = {n: [output / folder_name(n, seed) for seed in seeds] for n in SCHEDULES}
    curves = {name: [curve(folder) for folder in each] for name, each in folders.items()}
    print(table(curves))
    print("\n| | sampled tokens in training, millions | share of episodes cut |\n|---|---|---|")
    figure = matplotlib.figure.Figure(figsize=(8, 7), layout="constrained")
    success, horizon = figure.subplots(2, 1, height_ratios=[3, 1])
    draw(success, curves, "TextCraft, 3 to 8 actions, judged within 10")
    for name, each in folders.items():
        steps = [rows(folder, "train") for folder in each]
        tokens = statistics.mean(sum(r["tokens"] * r["episodes"] for r in run) for run in steps)
        cut = statistics.mean(r["horizon_cut"] for run in steps for r in run)
        print(f"| {name} | {tokens / 1e6:.2f} | {cut:.2f} |")
        means = [statistics.mean(r["horizon"] for r in at) for at in zip(*steps, strict=True)]
        horizon.step(range(1, len(means) + 1), means, where="mid", label=name)
    horizon.set(xlabel="training step", ylabel="training horizon", ylim=(0, None))
    figure.savefig(ROOT / "docs" / "horizons.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "horizons")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    seeds, output = arguments.seeds, arguments.output
    starts = [Planned(f"start-{n}", STUDIES / "crafting_start.yaml", (f"seed={n}",)) for n in seeds]
    train(starts, output, arguments.jobs)
    train([planned(name, n, output) for n in seeds for name in SCHEDULES], output, arguments.jobs)
    report(seeds, output)


if __name__ == "__main__":
    main()
