"""Ranks as threads of this process, each with an event loop of its own."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_core.agents.act import Act
from agentgym_core.batching import rank_micro_batches
from agentgym_core.checkpoint import latest, save
from agentgym_core.errors import Interrupted, RankError
from agentgym_core.expert import ExpertPolicy
from agentgym_core.metrics import MetricsLog
from agentgym_core.player import Player
from agentgym_core.protocols import Agent
from agentgym_core.ranks import ALONE, Ranks, on_first
from agentgym_core.rollout import Attempts, Table
from agentgym_core.rounds import FixedRoundsScheduler
from agentgym_core.run_directory import check_same
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.settings import TrainingConfig
from agentgym_core.testing.backend import RecordingTrainer
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Sampling


class Threads(Ranks):
    """One of several threads that wait for each other."""

    def __init__(self, rank: int, values: list, barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(values)
        self._values, self._barrier = values, barrier

    def gather(self, value):
        self._values[self.rank] = value
        self._barrier.wait(20)
        values = list(self._values)
        self._barrier.wait(20)
        return values

    def close(self) -> None:
        pass


def on_all(size, call):
    """What `call(ranks)` returns or raises on each of `size` ranks."""
    values, barrier = [None] * size, threading.Barrier(size)

    def one(rank):
        try:
            return call(Threads(rank, values, barrier))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


LENGTHS = st.lists(st.integers(1, 30), max_size=40)


def rows(lengths):
    return [range(length) for length in lengths]


def test_rows_are_dealt_longest_first_there_and_back():
    # Longest first 0 2 4 3 1: to the ranks 0 1 1 0 0.
    lengths = rows([5, 1, 4, 2, 3])
    assert rank_micro_batches(lengths, 5, 0, 2) == ([[0], [3, 1]], 2)
    assert rank_micro_batches(lengths, 5, 1, 2) == ([[2], [4]], 2)


def test_a_rank_with_fewer_micro_batches_computes_one_again():
    lengths = rows([4, 4, 4])
    assert rank_micro_batches(lengths, 4, 0, 2) == ([[0], [0]], 1)
    assert rank_micro_batches(lengths, 4, 1, 2) == ([[1], [2]], 2)


def test_a_rank_without_rows_computes_one_of_the_first_rank():
    assert rank_micro_batches(rows([3]), 8, 0, 3) == ([[0]], 1)
    assert rank_micro_batches(rows([3]), 8, 2, 3) == ([[0]], 0)
    assert rank_micro_batches([], 8, 1, 3) == ([], 0)


@given(LENGTHS, st.integers(1, 40), st.integers(1, 5))
def test_every_row_counts_once_in_equally_many_micro_batches(lengths, max_tokens, size):
    all_ranks = [rank_micro_batches(rows(lengths), max_tokens, r, size) for r in range(size)]
    assert len({len(batches) for batches, _ in all_ranks}) == 1
    counted = [i for batches, num in all_ranks for batch in batches[:num] for i in batch]
    assert sorted(counted) == list(range(len(lengths)))
    for batches, _ in all_ranks:
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= max_tokens


def test_the_first_rank_acts_for_all():
    done = []

    def act(ranks):
        return on_first(ranks, lambda: done.append(ranks.rank) or "made")

    assert on_all(3, act) == ["made"] * 3
    assert done == [0]
    assert on_first(ALONE, lambda: 7) == 7


def test_one_checkpoint_is_written_by_all(tmp_path):
    @attrs.define(kw_only=True)
    class Sharded(RecordingTrainer):
        rank: int

        def save(self, folder):
            (folder / f"shard-{self.rank}").write_text(str(self.rank))

    for _ in range(2):  # the second time it stands already
        said = on_all(3, lambda ranks: save(tmp_path, 4, {"x": 1}, Sharded(rank=ranks.rank), ranks))
        assert said == [None] * 3
    found = latest(tmp_path)
    assert found is not None
    assert found.state == {"step": 4, "x": 1}
    assert {file.name for file in found.folder.iterdir()} == {
        *("shard-0", "shard-1", "shard-2", "state.json", "manifest.json")
    }


def test_all_know_the_metrics_and_the_first_writes_them(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).append({"stage": "a", "phase": "train", "step": 1})

    def go_on(ranks):
        log = MetricsLog.shared(path, ranks)
        log.append({"stage": "a", "phase": "train", "step": 2})
        log.forget_after("a", 1)
        log.append({"stage": "a", "phase": "train", "step": 2, "again": True})
        return log.rows

    expected = [
        {"stage": "a", "phase": "train", "step": 1},
        {"stage": "a", "phase": "train", "step": 2, "again": True},
    ]
    assert on_all(2, go_on) == [expected, expected]
    assert MetricsLog(path).rows == expected


def test_configurations_that_differ_are_named():
    check_same([{"seed": 3}, {"seed": 3}])
    with pytest.raises(RankError, match=r"rank 1 .* than rank 0: seed is 4 there and 3 here"):
        check_same([{"seed": 3}, {"seed": 4}])


def player(ranks, agent=None):
    table = Table(
        environments={"countdown": Countdown()}, agent=agent or Act(), policy=ExpertPolicy()
    )
    return Player(
        table=table,
        pools=(),
        tasks=UniformTaskSampler(),
        rounds=FixedRoundsScheduler(rounds=9),
        training=TrainingConfig(num_steps=1, tasks_per_step=1),
        sampling=Sampling(),
        seed=0,
        ranks=ranks,
    )


def orders(num):
    tasks = Countdown().tasks("train")[:num]
    return [
        Attempts(
            environment="countdown",
            task=task,
            num=2,
            max_rounds=9,
            sampling=Sampling(),
            seed=place,
        )
        for place, task in enumerate(tasks)
    ]


@pytest.mark.parametrize(("num", "size"), [(4, 3), (3, 2), (1, 3), (0, 2)])
def test_every_rank_is_given_all_groups_in_their_order(num, size):
    def plain(groups):
        return [
            (group.task.id, [[turn.action for turn in e.turns] for e in group.episodes])
            for group in groups
        ]

    expected = plain(asyncio.run(player(ALONE).play(orders(num))))
    played = on_all(size, lambda ranks: plain(asyncio.run(player(ranks).play(orders(num)))))
    assert played == [expected] * size
    assert len(expected) == num


def test_a_rank_that_is_told_to_stop_stops_all():
    class Slow(Agent):
        async def play(self, task, session, handler):
            await asyncio.sleep(30)

    def play(ranks):
        slow = player(ranks, Slow() if ranks.rank == 1 else Act())

        async def main():
            if ranks.rank == 1:
                asyncio.get_running_loop().call_later(0.2, slow.stop, signal.SIGTERM)
            await slow.play(orders(4))

        asyncio.run(main())

    for error in on_all(3, play):
        assert isinstance(error, Interrupted)
        assert error.signal == signal.SIGTERM


def test_the_others_hear_what_a_rank_failed_of():
    def play(ranks):
        broken = player(ranks)
        if ranks.rank == 1:
            broken.table = attrs.evolve(broken.table, environments={})
        asyncio.run(broken.play(orders(2)))

    first, second = on_all(2, play)
    assert isinstance(first, RankError)
    assert "rank 1 stopped: " in str(first)
    assert not isinstance(second, RankError)
