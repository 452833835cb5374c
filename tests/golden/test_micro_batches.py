import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_core.batching import micro_batches, rank_micro_batches
from agentgym_core.types import Row


def rows_of(lengths):
    return [
        Row(
            token_ids=np.zeros(length, np.int64),
            mask=np.zeros(length, np.bool_),
            weights=np.zeros(length),
            advantages=np.zeros(length),
            old_logprobs=np.zeros(length),
            sampled_logprobs=np.zeros(length),
        )
        for length in lengths
    ]


class TestMicroBatches:
    def test_by_hand(self):
        # Longest first: 9 is alone, as 2 x 9 > 12; 5 and 4 fill 2 x 5 = 10; 3, 3, 2 fill 3 x 3 = 9.
        assert micro_batches(rows_of([3, 9, 4, 2, 5, 3]), 12) == [[1], [4, 2], [0, 5, 3]]

    def test_a_longer_row_goes_alone(self):
        assert micro_batches(rows_of([1, 100, 2]), 8) == [[1], [2, 0]]

    def test_no_rows(self):
        assert micro_batches([], 8) == []

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(1, 40)), st.integers(1, 200))
    def test_every_row_once_within_the_bound(self, lengths, max_tokens):
        batches = micro_batches(rows_of(lengths), max_tokens)
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        for batch in batches:
            padded = len(batch) * max(lengths[index] for index in batch)
            assert padded <= max_tokens or len(batch) == 1


class TestRanks:
    def test_rows_are_dealt_there_and_back(self):
        # Lengths 9, 5 | 4, 3 | 2, dealt to ranks 0, 1 | 1, 0 | 0. Rank 0: 9 is alone, 3 and 2 fill
        # 2 x 3. Rank 1: 5 and 4 fill 2 x 5 = 10 exactly, and are computed again beside the second.
        rows = rows_of([3, 9, 4, 2, 5])
        assert rank_micro_batches(rows, 10, 0, 2) == ([[1], [0, 3]], 2)
        assert rank_micro_batches(rows, 10, 1, 2) == ([[4, 2], [4, 2]], 1)

    def test_only_the_last_one_is_computed_again(self):
        # One token at a time: rows 0, 3, 4 and 1, 2.
        rows = rows_of([1] * 5)
        assert rank_micro_batches(rows, 1, 0, 2) == ([[0], [3], [4]], 3)
        assert rank_micro_batches(rows, 1, 1, 2) == ([[1], [2], [2]], 2)

    def test_a_rank_without_rows_computes_one_of_the_first_ranks(self):
        assert rank_micro_batches(rows_of([2, 3]), 9, 2, 3) == ([[1]], 0)
