from math import comb

import attrs
import numpy as np
import pytest

from agentgym_core.statistics import episode_metrics, pass_at_k, sampling_gap, wilson_interval
from agentgym_core.types import Ending, Episode, Group, Scores, Task, TokenSequence, Turn


def turn(num_tokens, *, sequence=0, reward=0.0, rounds=1, format_error=False, rewards=None):
    return Turn(
        sequence=sequence,
        prompt_ids=(1,),
        token_ids=(2,) * num_tokens,
        logprobs=(-1.0,) * num_tokens,
        finish_reason="stop",
        policy_version=0,
        text="",
        reward=reward,
        rewards=rewards or {},
        rounds=rounds,
        format_error=format_error,
    )


def episode(*turns, ending=Ending.DONE, success=False, failed_tries=()):
    return Episode(
        task=Task(id="room_1"),
        environment="room",
        sample=0,
        seed=0,
        max_rounds=9,
        turns=turns,
        messages=(),
        ending=ending,
        success=success,
        failed_tries=failed_tries,
    )


def group(*episodes, num_failed=0):
    failed = Ending.ENGINE_FAILED
    failures = (episode(turn(9), ending=failed, failed_tries=(failed, failed)),) * num_failed
    task = Task(id="room_1")
    return Group(task=task, environment="room", episodes=episodes, failures=failures)


def test_episode_metrics_by_hand():
    groups = [
        group(
            # reward 1.5, 2 rounds, 5 tokens, 2 contexts, 3 turns of which one thought
            episode(
                turn(1, reward=0.5, rewards={"craft": 0.5}),
                turn(3, rounds=0),
                turn(1, sequence=1, reward=1.0, rewards={"craft": 0.5, "goal": 1.0}),
                success=True,
            ),
            # reward -0.5, 1 round, 2 tokens, 1 turn
            episode(turn(2, reward=-0.5, format_error=True), ending=Ending.OUT_OF_ROUNDS),
            num_failed=1,
        ),
        group(num_failed=2),
        group(
            episode(turn(4), turn(4), ending=Ending.OUT_OF_TOKENS),
            episode(ending=Ending.OUT_OF_TOKENS, failed_tries=(Ending.INVALID_REWARD,)),
        ),
    ]
    # Rewards 1.5, -0.5, 0, 0: mean 0.25, mean of squares 2.5 / 4, variance 0.625 - 0.0625.
    assert episode_metrics(groups) == pytest.approx(
        {
            "episodes": 4,
            "dropped": 3 / 7,
            "success": 1 / 4,
            "success_best": 1 / 4,
            "attempts": 1,
            "reward": 0.25,
            "reward_std": 0.5625**0.5,
            "rounds": (2 + 1 + 2 + 0) / 4,
            "tokens": (5 + 2 + 8 + 0) / 4,
            "contexts": (2 + 1 + 1 + 0) / 4,
            "horizon_cut": 1 / 4,
            "tokens_cut": 2 / 4,
            "format_errors": 1 / 6,
            "reward/craft": 1.0 / 4,
            "reward/goal": 1.0 / 4,
            "dropped/engine-failed": 3 / 7,
            "retried/engine-failed": 6,
            "retried/invalid-reward": 1,
            "diagnosis/loop": 0,
            "diagnosis/premature-stop": 0,
            "diagnosis/context-overflow": 2 / 4,
            "diagnosis/format-errors": 1 / 4,
            "diagnosis/horizon-cut": 1 / 4,
        },
        abs=1e-12,
    )


def test_without_episodes_there_are_no_means():
    assert episode_metrics([]) == {"episodes": 0, "dropped": 0}
    assert episode_metrics([group(num_failed=4), group()]) == {
        "episodes": 0,
        "dropped": 1,
        "dropped/engine-failed": 1,
        "retried/engine-failed": 8,
    }


def test_an_episode_without_turns_has_no_format_errors():
    assert episode_metrics([group(episode())])["format_errors"] == 0


def test_sampling_gap_is_over_trained_tokens():
    mask = np.array([False, True, True, False])
    sequence = TokenSequence(
        token_ids=np.zeros(4, np.int64),
        mask=mask,
        logprobs=np.array([0.0, -1.0, -2.0, 0.0]),
        rewards=np.zeros(4),
        turns=np.where(mask, 0, -1),
        versions=np.where(mask, 0, -1),
        episode=0,
        group=0,
    )
    scores = Scores(logprobs=(np.array([-9.0, -1.25, -1.25, -9.0]),))
    # |-1.25 + 1| = 0.25 and |-1.25 + 2| = 0.75
    assert sampling_gap([sequence], scores) == {"sampling_gap": 0.5, "sampling_gap_max": 0.75}
    assert sampling_gap([sequence], Scores()) == {}
    assert sampling_gap([], Scores(logprobs=())) == {}


class TestWilsonInterval:
    def test_by_hand(self):
        # 4 of 16, z = 2, so that z^2 = 4: center (1/4 + 4/32) / (1 + 4/16) = 0.375 / 1.25 = 0.3;
        # margin 2 sqrt(3/256 + 4/1024) / 1.25 = 2 sqrt(1/64) / 1.25 = 0.25 / 1.25 = 0.2.
        assert wilson_interval(4, 16, z=2.0) == pytest.approx((0.1, 0.5), abs=1e-12)

    def test_is_the_solution_of_the_score_equation(self):
        # At both ends |rate - p| = z sqrt(p (1 - p) / n).
        for successes, n in [(1, 7), (50, 200), (199, 200)]:
            for p in wilson_interval(successes, n):
                distance = abs(successes / n - p)
                assert distance == pytest.approx(1.96 * (p * (1 - p) / n) ** 0.5, abs=1e-12)

    def test_at_the_edges(self):
        # 0 of 10: up to z^2 / (n + z^2) = 3.8416 / 13.8416
        assert wilson_interval(0, 10) == pytest.approx((0, 3.8416 / 13.8416), abs=1e-12)
        assert wilson_interval(10, 10) == pytest.approx((10 / 13.8416, 1), abs=1e-12)
        assert wilson_interval(0, 0) == (0, 1)

    def test_a_mean_of_means(self):
        # Tasks with success 1, 1/2 and 1/4: 1.75 of 3.
        low, high = wilson_interval(1.75, 3)
        assert low < 1.75 / 3 < high

    @pytest.mark.parametrize(("successes", "n"), [(3, 2), (-1, 2)])
    def test_refused(self, successes, n):
        with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
            wilson_interval(successes, n)


class TestPassAtK:
    @pytest.mark.parametrize(
        ("n", "c", "k", "value"),
        [
            (4, 1, 1, 1 / 4),  # one of four
            (4, 1, 2, 1 / 2),  # pairs without it: C(3, 2) = 3 of 6
            (5, 2, 3, 0.9),  # triples without either: C(3, 3) = 1 of 10
            (4, 0, 4, 0.0),
            (4, 4, 1, 1.0),
            (4, 2, 3, 1.0),  # only two fail
        ],
    )
    def test_by_hand(self, n, c, k, value):
        assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-12)

    def test_is_unbiased(self):
        # c is binomial with chance p; the mean of the estimate is 1 - (1 - p)^k.
        n, k, p = 6, 3, 0.3
        mean = sum(
            comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1)
        )
        assert mean == pytest.approx(1 - 0.7**3, abs=1e-12)

    def test_large_numbers(self):
        expected = 1 - np.prod([(5000 - i) / (10_000 - i) for i in range(10)])
        assert pass_at_k(10_000, 5_000, 10) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)])
    def test_refused(self, n, c, k):
        with pytest.raises(ValueError, match="of 4 attempts"):
            pass_at_k(n, c, k)


def test_one_attempt_that_failed_is_all_of_them():
    assert episode_metrics([group(num_failed=1)])["dropped"] == 1.0


def test_one_turn_without_an_action_is_all_of_them():
    metrics = episode_metrics([group(episode(turn(1, format_error=True)))])
    assert metrics["format_errors"] == 1.0


def test_the_share_that_ran_out_of_tokens():
    cut = episode(turn(1), ending=Ending.OUT_OF_TOKENS)
    metrics = episode_metrics([group(cut, episode(turn(1)), episode(turn(1)))])
    assert metrics["tokens_cut"] == pytest.approx(1 / 3)


def test_causes_and_parts_are_in_the_order_of_their_names():
    causes = (Ending.INVALID_REWARD, Ending.ENGINE_FAILED)
    failures = tuple(episode(ending=cause) for cause in causes)
    played = episode(turn(1, rewards=dict.fromkeys("gecafbd", 1.0)), failed_tries=causes)
    metrics = list(episode_metrics([attrs.evolve(group(played), failures=failures)]))
    for prefix in ("dropped/", "retried/", "reward/"):
        found = [name for name in metrics if name.startswith(prefix)]
        assert len(found) > 1
        assert found == sorted(found)


def test_a_bound_of_1_is_1():
    # Five of five: the bound is (1 + z^2 / 10 + z^2 / 10) / (1 + z^2 / 5), rounded to above 1.
    assert wilson_interval(5, 5)[1] == 1.0
