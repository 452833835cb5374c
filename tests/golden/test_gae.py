"""Generalised advantages by token and by turn: by hand, and against sums written out in full."""

import attrs
import numpy as np
import pytest

from agentgym_core.sequences import to_sequences
from agentgym_core.types import Ending, Episode, Group, Scores, Task, TokenSequence, Turn
from agentgym_ppo.gae import GAE
from agentgym_ppo.gae_turn import TurnGAE

HALVES = GAE(gamma=0.5, lam=0.5, whiten=False, bootstrap_truncated=True)
"""gamma lam = 1/4, so that everything is a short binary fraction."""
TURNS = TurnGAE(gamma=0.5, lam=0.5, whiten=False, bootstrap_truncated=True)


def sequence(turns, rewards, *, episode=0, truncated=False, mask=None):
    """`turns` such as "00..11.." names the turn of each token; dots are the world's."""
    numbers = np.array([-1 if sign == "." else int(sign) for sign in turns])
    placed = np.zeros(len(numbers))
    for place, reward in rewards.items():
        placed[place] = reward
    trained = numbers >= 0
    if mask is not None:
        trained = np.array([bit == "1" for bit in mask])
    return TokenSequence(
        token_ids=np.zeros(len(numbers), np.int64),
        mask=trained,
        logprobs=np.zeros(len(numbers)),
        rewards=placed,
        turns=numbers,
        versions=np.where(numbers >= 0, 0, -1),
        episode=episode,
        group=0,
        truncated=truncated,
    )


def credit(estimator, sequences, values, final=None):
    final = [0.0] * len(sequences) if final is None else final
    scores = Scores(
        values=tuple(np.array(line, np.float64) for line in values), final_values=np.array(final)
    )
    return estimator(sequences, scores)


def lists(arrays):
    return [array.tolist() for array in arrays]


def test_two_turns_by_hand():
    # Mask 1100 1100, reward 1 on the last generated token. gamma = lam = 1/2.
    #   V       4     2       8     4      0 after the end
    #   delta  -3    +2      -6    -3      e.g. 0 + 8/2 - 2 = 2;  1 + 0 - 4 = -3
    #   A       delta_4 = -3;  -6 - 3/4 = -6.75;  2 - 6.75/4 = 0.3125;  -3 + 0.3125/4 = -2.921875
    one = sequence("00..11..", {5: 1.0})
    found = credit(HALVES, [one], [[4, 2, 0, 0, 8, 4, 0, 0]])
    assert lists(found.values) == [[-2.921875, 0.3125, 0, 0, -6.75, -3, 0, 0]]
    assert lists(found.returns) == [[1.078125, 2.3125, 0, 0, 1.25, 1, 0, 0]]


def test_the_reward_reaches_every_token_without_discount():
    one = sequence("00..11..", {5: 1.0})
    found = credit(GAE(whiten=False), [one], [[0] * 8])
    assert lists(found.values) == lists(found.returns) == [[1, 1, 0, 0, 1, 1, 0, 0]]


@pytest.mark.parametrize("estimator", [HALVES, TURNS, GAE(), TurnGAE()])
def test_observations_take_no_step_and_are_not_valued(estimator):
    rewards, values = {1: 0.5, 5: 1.0}, [4, 2, 0, 0, 8, 4, 0, 0]
    plain = credit(estimator, [sequence("00..11..", rewards)], [values])
    loud = credit(estimator, [sequence("00..11..", rewards)], [[4, 2, 1e6, 1e6, 8, 4, 1e6, 1e6]])
    long = credit(
        estimator,
        [sequence("..00.......11", {3: 0.5, 12: 1.0})],
        [[0, 0, 4, 2, *[1e6] * 7, 8, 4]],
    )
    for name in ("values", "returns"):
        (expected,) = getattr(plain, name)
        assert getattr(loud, name)[0].tolist() == expected.tolist()
        assert getattr(long, name)[0][[2, 3, 11, 12]].tolist() == expected[[0, 1, 4, 5]].tolist()


def test_an_end_has_no_value_after_it_and_a_cut_has_the_critics():
    # V = 2, 4; the state after is worth 16.
    # Ended:  delta = 0 + 4/2 - 2 = 0;  1 - 4 = -3           A = -0.75, -3
    # Cut:    delta = 0;                1 + 16/2 - 4 = 5      A =  1.25,  5
    values, rewards = [[0, 2, 4]], {2: 1.0}
    ended, cut = (sequence(".00", rewards, truncated=truncated) for truncated in (False, True))
    assert lists(credit(HALVES, [ended], values, [16.0]).values) == [[0, -0.75, -3]]
    assert lists(credit(HALVES, [cut], values, [16.0]).values) == [[0, 1.25, 5]]
    assert lists(credit(HALVES, [cut], values, [16.0]).returns) == [[0, 3.25, 9]]
    without = attrs.evolve(HALVES, bootstrap_truncated=False)
    assert lists(credit(without, [cut], values, [16.0]).values) == [[0, -0.75, -3]]
    # By turn: R = 1, V = 2.   Ended: 1 - 2 = -1.   Cut: 1 + 8 - 2 = 7.
    assert lists(credit(TURNS, [ended], values, [16.0]).values) == [[0, -1, -1]]
    assert lists(credit(TURNS, [cut], values, [16.0]).values) == [[0, 7, 7]]
    without = attrs.evolve(TURNS, bootstrap_truncated=False)
    assert lists(credit(without, [cut], values, [16.0]).values) == [[0, -1, -1]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("estimator", [HALVES, TURNS])
def test_an_episode_goes_on_over_its_sequences(estimator, order):
    """In several contexts, in whatever order, it gets what it would get in one."""
    whole = sequence(".00.11.2", {2: 1.0, 5: -1.0, 7: 4.0}, truncated=True)
    expected = credit(estimator, [whole], [[0, 1, 2, 0, 3, 4, 0, 5]], [6.0])
    parts = [
        sequence(".00.", {2: 1.0}, truncated=True),
        sequence(".11.2", {2: -1.0, 4: 4.0}, truncated=True),
    ]
    values, final = [[0, 1, 2, 0], [0, 3, 4, 0, 5]], [1e6, 6.0]
    found = credit(
        estimator, [parts[i] for i in order], [values[i] for i in order], [final[i] for i in order]
    )
    for name in ("values", "returns"):
        joined = np.concatenate(
            [getattr(found, name)[order.index(i)][parts[i].mask] for i in (0, 1)]
        )
        assert joined.tolist() == getattr(expected, name)[0][whole.mask].tolist()


@pytest.mark.parametrize("estimator", [HALVES, TURNS])
def test_turns_of_two_contexts_are_taken_in_their_order(estimator):
    """A context that is left and taken up again."""
    whole = sequence("00.1.22", {1: 1.0, 3: 2.0, 6: 4.0})
    (expected,) = credit(estimator, [whole], [[1, 2, 0, 3, 0, 4, 5]]).values
    outer = sequence("00.22", {1: 1.0, 4: 4.0})
    inner = sequence("..1", {2: 2.0})
    found = credit(estimator, [inner, outer], [[0, 0, 3], [1, 2, 0, 4, 5]]).values
    assert found[1].tolist() == expected[[0, 1, 2, 5, 6]].tolist()
    assert found[0].tolist() == [0, 0, expected[3]]


def test_a_turn_that_is_not_trained_is_the_worlds_doing():
    """It takes no step, its values are nothing, and an episode may end in it."""
    with_it = sequence("00.1.22", {1: 1.0, 6: 4.0}, mask="1100011")
    without = sequence("00...22", {1: 1.0, 6: 4.0})
    values = [[1, 2, 0, 1e6, 0, 4, 5]]
    for estimator in (HALVES, TURNS):
        found, expected = (credit(estimator, [s], values) for s in (with_it, without))
        assert lists(found.values) == lists(expected.values)
        assert lists(found.returns) == lists(expected.returns)
    # Turn 1 lies in a context of its own, where the episode was cut: the value there counts.
    first = sequence("00", {1: 1.0}, truncated=True)
    last = sequence("..1", {}, truncated=True, mask="000")
    found = credit(HALVES, [last, first], [[0, 0, 9], [2, 4]], [16.0, 1e6])
    assert lists(found.values) == [[0, 0, 0], [1.25, 5]]


def test_credit_by_turn_by_hand():
    # Turns of 2, 1 and 2 tokens; V at their first tokens 4, 8, 2; R = 1, 0, 3. gamma = lam = 1/2.
    #   delta   1 + 8/2 - 4 = 1;   0 + 2/2 - 8 = -7;   3 + 0 - 2 = 1
    #   A       1 - 6.75/4 = -0.6875;   -7 + 1/4 = -6.75;   1
    #   target  3.3125;   1.25;   3
    one = sequence("00.1.22", {1: 1.0, 6: 3.0})
    found = credit(TURNS, [one], [[4, 1e6, 0, 8, 0, 2, 1e6]])
    assert lists(found.values) == [[-0.6875, -0.6875, 0, -6.75, 0, 1, 1]]
    assert lists(found.returns) == [[3.3125, 3.3125, 0, 1.25, 0, 3, 3]]


def test_each_turn_is_paid_for_what_it_earned():
    """Rewards per turn: with gamma 0 nothing else counts."""
    one = sequence("00.1.22", {1: 1.0, 3: -2.0, 6: 3.0})
    by_turn = credit(TurnGAE(gamma=0.0, whiten=False), [one], [[0] * 7])
    assert lists(by_turn.values) == [[1, 1, 0, -2, 0, 3, 3]]
    by_token = credit(GAE(gamma=0.0, whiten=False), [one], [[0] * 7])
    assert lists(by_token.values) == [[0, 1, 0, -2, 0, 0, 3]]


@pytest.mark.parametrize("kind", [GAE, TurnGAE])
def test_whitening_is_over_all_trained_tokens_and_leaves_the_targets(kind):
    batch = [
        sequence("00..1", {1: 0.5, 4: 1.0}, truncated=True),
        sequence(".0", {1: 0.0}, episode=1),
        sequence(".0.", {1: 0.25}, episode=2, mask="000"),
    ]
    values, final = [[1, 2, 0, 0, 4], [0, 3], [0, 9, 0]], [0.5, 0.0, 0.0]
    plain = credit(kind(whiten=False), batch, values, final)
    white = credit(kind(), batch, values, final)
    assert lists(white.returns) == lists(plain.returns)
    assert white.metrics == plain.metrics
    before, after = (
        np.concatenate([v[s.mask] for v, s in zip(found.values, batch, strict=True)])
        for found in (plain, white)
    )
    assert after == pytest.approx((before - before.mean()) / before.std(), rel=1e-6)
    assert not any(v[~s.mask].any() for v, s in zip(white.values, batch, strict=True))


@pytest.mark.parametrize("kind", [GAE, TurnGAE])
def test_fewer_than_two_trained_tokens_are_not_whitened(kind):
    none = sequence("..", {}, mask="00")
    assert lists(credit(kind(), [none], [[0, 0]]).values) == [[0, 0]]
    assert credit(kind(), [], []).values == ()
    one = sequence(".0", {1: 3.0}, episode=1)
    assert lists(credit(kind(), [none, one], [[0, 0], [0, 1]]).values) == [[0, 0], [0, 2]]
    # Two tokens: 3 - 1 and 1 - 1 have mean 1 and deviation 1.
    other = sequence("0", {0: 1.0}, episode=2)
    (first, second) = credit(kind(), [one, other], [[0, 1], [1]]).values
    assert [first[1], second[0]] == pytest.approx([1, -1], abs=1e-7)


@pytest.mark.parametrize("kind", [GAE, TurnGAE])
def test_the_value_after_a_cut_is_asked_for_only_where_it_is_used(kind):
    assert kind(gamma=0.9).needs == {"values"}
    assert kind(gamma=0.9, bootstrap_truncated=True).needs == {"values", "final_values"}


def test_the_explained_variance_by_hand():
    # Two episodes of one token: targets 1 and 3, of variance 1.
    # V = 0, 1: errors 1, 2, variance 1/4.   V = targets: 1.   V = 2, 2: errors -1, 1: 0.
    batch = [sequence("0", {0: 1.0}), sequence("0", {0: 3.0}, episode=1)]

    def explained(*values):
        return credit(GAE(), batch, [[value] for value in values]).metrics["explained_variance"]

    assert [explained(0, 1), explained(1, 3), explained(2, 2)] == pytest.approx([0.75, 1, 0])
    # Targets 0 and 4, of variance 4; errors 0 and 2, of variance 1.
    batch = [sequence("0", {0: 0.0}), sequence("0", {0: 4.0}, episode=1)]
    assert explained(0, 2) == pytest.approx(0.75)
    equal = [sequence("0", {0: 1.0}), sequence("0", {0: 1.0}, episode=1)]
    assert credit(GAE(), equal, [[0], [5]]).metrics == {}


def naive(rewards, values, end, gamma, lam):
    """The paper's equation 16: every delta written out, and the sum of all that follow."""
    n = len(rewards)
    after = [*values[1:], end]
    deltas = [rewards[t] + gamma * after[t] - values[t] for t in range(n)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, n)) for t in range(n)]


def episodes(seed):
    """Random episodes, turn by turn: (sequence, said, heard, reward, trained)."""
    draw = np.random.default_rng(seed)
    for episode in range(12):
        turns = []
        context = 0
        for _ in range(draw.integers(1, 6)):
            said, heard = int(draw.integers(1, 7)), int(draw.integers(0, 5))
            turns.append((context, said, heard, float(draw.normal()), bool(draw.random() < 0.8)))
            context += int(draw.random() < 0.3)
        yield Group(
            task=Task(id=f"task-{episode}"),
            environment="world",
            episodes=(
                Episode(
                    task=Task(id=f"task-{episode}"),
                    environment="world",
                    sample=0,
                    seed=0,
                    max_rounds=9,
                    turns=tuple(
                        Turn(
                            sequence=context,
                            prompt_ids=(0,) * (heard + 1),
                            token_ids=(1,) * said,
                            logprobs=(0.0,) * said,
                            finish_reason="stop",
                            policy_version=0,
                            text="",
                            trained=trained,
                            reward=reward,
                        )
                        for context, said, heard, reward, trained in turns
                    ),
                    messages=(),
                    ending=Ending.OUT_OF_ROUNDS if draw.random() < 0.5 else Ending.DONE,
                    success=False,
                    final_ids=(0, 0),
                ),
            ),
        )


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7), (0.99, 0.95), (1.0, 0.0)])
@pytest.mark.parametrize("seed", range(3))
def test_random_batches_equal_the_sums_written_out(gamma, lam, seed):
    groups = list(episodes(seed))
    sequences = to_sequences(groups)
    draw = np.random.default_rng(seed)
    values = [draw.normal(size=len(s)) for s in sequences]
    final = np.array([draw.normal() if s.truncated else 0.0 for s in sequences])
    order = draw.permutation(len(sequences)).tolist()
    shuffled = [sequences[i] for i in order], [values[i] for i in order], final[order]
    goes_on = gamma < 1
    keys = {"gamma": gamma, "lam": lam, "whiten": False, "bootstrap_truncated": goes_on}
    by_token, by_turn = (credit(kind(**keys), *shuffled) for kind in (GAE, TurnGAE))
    for number, group in enumerate(groups):
        own = [i for i, s in enumerate(sequences) if s.episode == number]
        tokens = sorted(
            (int(sequences[i].turns[t]), t, i)
            for i in own
            for t in range(len(sequences[i]))
            if sequences[i].mask[t]
        )
        if not tokens:
            continue
        (episode,) = group.episodes
        end = final[own[-1]] if episode.ending.is_truncation and goes_on else 0.0
        rewards = [sequences[i].rewards[t] for _, t, i in tokens]
        assert sum(rewards) == pytest.approx(episode.reward)
        value = [values[i][t] for _, t, i in tokens]
        expected = naive(rewards, value, end, gamma, lam)
        for (_, t, i), advantage, v in zip(tokens, expected, value, strict=True):
            place = order.index(i)
            assert by_token.values[place][t] == pytest.approx(advantage, abs=1e-10)
            assert by_token.returns[place][t] == pytest.approx(advantage + v, abs=1e-10)
        turns = sorted({turn for turn, _, _ in tokens})
        firsts = [next(v for (k, _, _), v in zip(tokens, value, strict=True) if k == turn)
                  for turn in turns]  # fmt: skip
        earned = [sum(r for (k, _, _), r in zip(tokens, rewards, strict=True) if k == turn)
                  for turn in turns]  # fmt: skip
        expected = dict(zip(turns, naive(earned, firsts, end, gamma, lam), strict=True))
        for turn, t, i in tokens:
            place = order.index(i)
            assert by_turn.values[place][t] == pytest.approx(expected[turn], abs=1e-10)
            target = expected[turn] + firsts[turns.index(turn)]
            assert by_turn.returns[place][t] == pytest.approx(target, abs=1e-10)


def test_without_a_discount_a_cut_is_an_end():
    """Or an episode that is never finished would lose nothing."""
    assert not GAE().bootstrap_truncated
    with pytest.raises(ValueError, match="bootstrap_truncated needs a gamma below 1"):
        GAE(bootstrap_truncated=True)


@pytest.mark.parametrize("field", ["gamma", "lam"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("kind", [GAE, TurnGAE])
def test_fields_are_checked(kind, field, value):
    with pytest.raises(ValueError, match=f"'{field}' must be"):
        kind(**{field: value})
