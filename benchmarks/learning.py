"""Every algorithm from one imitation start: success against episodes played, three seeds each.

    python benchmarks/learning.py [NAME ...] [--output runs/learning] [--seeds 1 2 3] [--jobs 2]

Prints the tables of docs/algorithms.md and draws its picture. An hour and a half on two cores;
a study that was stopped goes on with the same command.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from study import ROOT, STUDIES, Planned, Point, curve, draw, table, train

ALGORITHMS = {path.stem.removeprefix("learn_"): path for path in STUDIES.glob("learn_*.yaml")}


def planned(name: str, seed: int, output: Path) -> Planned:
    """The run of an algorithm, from the start that its seed has."""
    start = output / f"start-{seed}" / "policies" / "imitate"
    return Planned(f"{name}-{seed}", ALGORITHMS[name], (f"seed={seed}", f"model.path={start}"))


def report(names: Sequence[str], seeds: Sequence[int], output: Path) -> None:
    """Print the table, and draw."""
    import matplotlib.figure

    curves: dict[str, list[list[Point]]] = {
        name: [curve(output / f"{name}-{seed}") for seed in seeds] for name in names
    }
    print(table(curves))
    greedy = {
        name: [curve(output / f"{name}-{seed}", "greedy") for seed in seeds] for name in names
    }
    print("\nGreedy:\n\n" + table(greedy))
    figure = matplotlib.figure.Figure(figsize=(8, 5), layout="constrained")
    draw(figure.subplots(), curves, "BabyAI, five missions, sampled at temperature 1")
    figure.savefig(ROOT / "docs" / "algorithms.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(sorted(ALGORITHMS)))
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "learning")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    names, seeds, output = arguments.names or sorted(ALGORITHMS), arguments.seeds, arguments.output
    if unknown := set(names) - set(ALGORITHMS):
        parser.error(f"no such algorithm: {', '.join(unknown)}. There are {', '.join(ALGORITHMS)}")
    starts = [Planned(f"start-{n}", STUDIES / "babyai_start.yaml", (f"seed={n}",)) for n in seeds]
    train(starts, output, arguments.jobs)
    train([planned(name, n, output) for n in seeds for name in names], output, arguments.jobs)
    report(names, seeds, output)


if __name__ == "__main__":
    main()
