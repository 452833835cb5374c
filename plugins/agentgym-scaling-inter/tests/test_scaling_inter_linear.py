from fractions import Fraction
from itertools import pairwise

import pytest

from agentgym_scaling_inter.linear_rounds import LinearRoundsScheduler


def horizons(scheduler, num):
    return [scheduler.max_rounds(step, None) for step in range(num)]


def test_by_hand():
    # 4 x step / 10, rounded down: 0 0.4 0.8 1.2 1.6 2 2.4 2.8 3.2 3.6 4
    scheduler = LinearRoundsScheduler(start=4, end=8, num_steps=10)
    assert horizons(scheduler, 13) == [4, 4, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 8]


def test_more_rounds_than_steps():
    # 5 x step / 2: 0, 2.5, 5
    scheduler = LinearRoundsScheduler(start=1, end=6, num_steps=2)
    assert horizons(scheduler, 4) == [1, 3, 6, 6]


@pytest.mark.parametrize(("start", "end", "num_steps"), [(10, 30, 300), (5, 16, 7), (1, 2, 1000)])
def test_is_the_line_rounded_down_and_ends_where_it_says(start, end, num_steps):
    scheduler = LinearRoundsScheduler(start=start, end=end, num_steps=num_steps)
    played = horizons(scheduler, num_steps + 5)
    for step, rounds in enumerate(played[: num_steps + 1]):
        line = start + Fraction((end - start) * step, num_steps)
        assert rounds <= line < rounds + 1
    assert played[0] == start
    assert played[num_steps - 1] < end
    assert set(played[num_steps:]) == {end}
    assert all(before <= after for before, after in pairwise(played))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0, "end": 5, "num_steps": 1}, "'start' must be >= 1: 0"),
        ({"start": 5, "end": 5, "num_steps": 1}, r"end is 5, not above start.*or use `fixed`"),
        ({"start": 5, "end": 4, "num_steps": 1}, r"end is 4, not above start, which is 5"),
        ({"start": 1, "end": 4, "num_steps": 0}, "'num_steps' must be >= 1: 0"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LinearRoundsScheduler(**options)
