"""The default task sampler, every task equally often, and what all samplers share: the mix.

Environments mix by their weights: see `shares`.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import floor, isfinite

import attrs
import numpy as np

from agentgym_core.protocols import State, TaskPool, TaskSampler
from agentgym_core.seeds import derive_seed
from agentgym_core.types import IntArray, Task


@attrs.frozen(kw_only=True)
class UniformTaskSampler(TaskSampler):
    """Goes through each pool in shuffled order, epoch after epoch.

    It has no state: how many tasks a pool has given before a step follows from the step, and the
    place in a pool's epochs follows from that count. So no task comes twice within an epoch of its
    pool, and a resumed run goes on with the very next task.
    """

    def select(
        self, pools: Sequence[TaskPool], num_tasks: int, *, step: int, seed: int, state: State
    ) -> tuple[tuple[TaskPool, Task], ...]:
        """The tasks of a step, pool by pool.

        Args:
            pools: the mix. Environments have unique names.
            num_tasks: tasks in every step of the run, this one included.
            step: 0, 1, …
            seed: the run's.
            state: None.

        Raises:
            ValueError: there are no pools, a weight is not a positive number, or a pool is empty.
        """
        check_pools(pools)
        return tuple(
            (pool, pool.tasks[place])
            for pool, (first, end) in zip(pools, shares(pools, num_tasks, step), strict=True)
            for place in shuffled_places(
                len(pool.tasks), first, end, seed, "tasks", pool.environment
            )
        )


def shares(pools: Sequence[TaskPool], num_tasks: int, step: int) -> list[tuple[int, int]]:
    """Which draws of each pool a step makes: number first, …, end - 1, counted from step 0.

    So the mix holds over the steps together, also where a pool's share of one is no whole number.
    """
    weights = [pool.weight for pool in pools]
    firsts = apportion(weights, step * num_tasks)
    ends = apportion(weights, (step + 1) * num_tasks)
    return list(zip(firsts, ends, strict=True))


def apportion(weights: Sequence[float], total: int) -> list[int]:
    """Share `total` items among weights, as near to proportion as whole numbers allow.

    The method is Sainte-Laguë's, for one property that largest remainders lack: as the total grows
    no share ever shrinks. Exact fractions make ties equal on every machine; the first weight wins.
    The time does not depend on the total.

    Example: apportion([3, 1], 8) == [6, 2]
    """
    sum_of_weights = sum(map(Fraction, weights))
    shares = [Fraction(weight) / sum_of_weights for weight in weights]
    # Rounding each share of a slightly smaller total gives the first shares of the same sequence,
    # never too many; the few that are missing are then handed out one by one.
    smaller = max(0, total - len(weights))
    counts = [floor(share * smaller + Fraction(1, 2)) for share in shares]
    for _ in range(total - sum(counts)):
        claims = [share / (2 * count + 1) for share, count in zip(shares, counts, strict=True)]
        counts[claims.index(max(claims))] += 1
    return counts


def shuffled_places(size: int, first: int, end: int, *seed: int | str) -> list[int]:
    """Places in a list for the draws number first, …, end - 1, counted from a run's start.

    Epoch after epoch each place is drawn once, in an order that the seed's parts and the epoch
    decide.
    """
    orders: dict[int, IntArray] = {}
    places: list[int] = []
    for draw in range(first, end):
        epoch, position = divmod(draw, size)
        if epoch not in orders:
            orders[epoch] = np.random.default_rng(derive_seed(*seed, epoch)).permutation(size)
        places.append(int(orders[epoch][position]))
    return places


def check_pools(pools: Sequence[TaskPool]) -> None:
    """Refuse a mix that no share can be computed of; see `UniformTaskSampler.select`."""
    if not pools:
        raise ValueError("there are no tasks to train on: the run has no environment")
    for pool in pools:
        if not (isfinite(pool.weight) and pool.weight > 0):
            raise ValueError(
                f"environment {pool.environment!r} has weight {pool.weight}; expected a number "
                "above 0 (leave the environment out to train without it)"
            )
        if not pool.tasks:
            raise ValueError(
                f"environment {pool.environment!r} has no tasks in its training split; choose "
                "another `split` or give it tasks"
            )
