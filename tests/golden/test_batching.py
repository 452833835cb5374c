import attrs
import numpy as np
import pytest
import torch

from agentgym_core.batching import check_advantages, make_batch, micro_batches, token_weights
from agentgym_core.losses import clipped_surrogate
from agentgym_core.types import Advantages, Scores, TokenSequence

AGGREGATIONS = [("token-mean", None), ("episode-mean", None), ("constant", 7.0)]


def sequence(mask, *, episode=0, token_ids=None, logprobs=None):
    mask = np.array([bit == "1" for bit in mask])
    length = len(mask)
    return TokenSequence(
        token_ids=np.arange(length) % 5 if token_ids is None else np.array(token_ids),
        mask=mask,
        logprobs=np.where(mask, -1.0, 0.0) if logprobs is None else logprobs,
        rewards=np.zeros(length),
        turns=np.where(mask, 0, -1),
        versions=np.where(mask, 0, -1),
        episode=episode,
        group=0,
    )


def batch_of(sequences, *, advantages=None, scores=None, **options):
    if advantages is None:
        advantages = Advantages(values=tuple(np.where(s.mask, 1.0, 0.0) for s in sequences))
    if scores is None:
        scores = Scores(logprobs=tuple(s.logprobs for s in sequences))
    settings = {
        "aggregation": "token-mean",
        "num_minibatches": 1,
        "num_epochs": 1,
        "seed": 0,
        "old_logprobs": "scored",
    }
    step = options.pop("step", 0)
    return make_batch(step, sequences, advantages, scores, **(settings | options))


def episodes_of(minibatch):
    """The episodes of a minibatch whose rows carry their episode's number as first token."""
    return [int(row.token_ids[0]) for row in minibatch.rows]


class TestAggregation:
    # Episode 0 has trained tokens with losses 1, 2, 3. Episode 1 was cut into two sequences, with
    # one trained token each: losses 10 and 20. Episode 2 has none.
    sequences = (
        sequence("0111", episode=0),
        sequence("001", episode=1),
        sequence("0001", episode=1),
        sequence("000", episode=2),
    )
    losses = (
        np.array([9.0, 1.0, 2.0, 3.0]),
        np.array([9.0, 9.0, 10.0]),
        np.array([9.0, 9.0, 9.0, 20.0]),
        np.array([9.0, 9.0, 9.0]),
    )

    @pytest.mark.parametrize(
        ("aggregation", "constant", "value"),
        [
            ("token-mean", None, 36 / 5),
            ("episode-mean", None, (6 / 3 + 30 / 2) / 2),
            ("constant", 4.0, 36 / (2 * 4)),
        ],
    )
    def test_by_hand(self, aggregation, constant, value):
        weights = token_weights(self.sequences, aggregation, constant)
        total = sum((w * loss).sum() for w, loss in zip(weights, self.losses, strict=True))
        assert total == pytest.approx(value, abs=1e-12)

    @pytest.mark.parametrize(("aggregation", "constant"), AGGREGATIONS)
    def test_an_all_masked_episode_changes_nothing(self, aggregation, constant):
        weights = token_weights(self.sequences, aggregation, constant)
        assert weights[3].tolist() == [0, 0, 0]
        without = token_weights(self.sequences[:3], aggregation, constant)
        for some, same in zip(weights[:3], without, strict=True):
            assert some.tolist() == same.tolist()

    @pytest.mark.parametrize(("aggregation", "constant"), AGGREGATIONS)
    def test_nothing_trained_at_all(self, aggregation, constant):
        weights = token_weights((sequence("000"), sequence("0")), aggregation, constant)
        assert [w.tolist() for w in weights] == [[0, 0, 0], [0]]
        assert token_weights((), aggregation, constant) == ()

    @pytest.mark.parametrize("aggregation", ["token-mean", "episode-mean"])
    def test_means_add_up_to_one(self, aggregation):
        weights = token_weights(self.sequences, aggregation)
        assert sum(w.sum() for w in weights) == pytest.approx(1, abs=1e-12)

    @pytest.mark.parametrize(
        ("aggregation", "constant", "message"),
        [
            ("mean", None, r"'mean'; expected one of token-mean, episode-mean, constant"),
            ("constant", None, "needs aggregation_constant > 0"),
            ("constant", 0.0, "needs aggregation_constant > 0"),
            ("constant", float("inf"), "needs aggregation_constant > 0"),
            ("token-mean", 8.0, "has no effect"),
        ],
    )
    def test_refused(self, aggregation, constant, message):
        with pytest.raises(ValueError, match=message):
            token_weights(self.sequences, aggregation, constant)


class TableModel(torch.nn.Module):
    """Log-probabilities of each token given the one before it."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(5, 5, generator=generator).to(dtype))

    def forward(self, token_ids_NT):
        logprobs = self.table[token_ids_NT[:, :-1]].log_softmax(-1)
        chosen = logprobs.gather(-1, token_ids_NT[:, 1:, None])[..., 0]
        return torch.nn.functional.pad(chosen, (1, 0))

    def score(self, sequences):
        with torch.no_grad():
            ids = [torch.from_numpy(s.token_ids)[None] for s in sequences]
            return tuple(self(i)[0].double().numpy() for i in ids)


def pad(rows, name, dtype):
    return torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(getattr(row, name)).to(dtype) for row in rows], batch_first=True
    )


def gradient(model, rows, splits):
    """What a backend does: for each micro-batch add up weight x loss, then go back."""
    dtype = model.table.dtype
    model.zero_grad()
    for split in splits:
        part = [rows[index] for index in split]
        loss, _ = clipped_surrogate(
            model(pad(part, "token_ids", torch.int64)),
            pad(part, "old_logprobs", dtype),
            pad(part, "advantages", dtype),
            pad(part, "mask", torch.bool),
            low=0.2,
            high=0.2,
        )
        (pad(part, "weights", dtype) * loss).sum().backward()
    return model.table.grad.clone()


def random_sequences(num_episodes=9, seed=1):
    generator = np.random.default_rng(seed)
    sequences = []
    for episode in range(num_episodes):
        for _ in range(1 + episode % 2):
            length = int(generator.integers(2, 30))
            mask = generator.random(length) < 0.5
            mask[0] = False  # nothing comes before the first token
            bits = "".join("01"[int(bit)] for bit in mask)
            ids = generator.integers(0, 5, length)
            sequences.append(sequence(bits, episode=episode, token_ids=ids))
    return tuple(sequences)


def credited(sequences):
    """A different advantage for each episode, and old log-probabilities off by up to 0.3."""
    generator = np.random.default_rng(2)
    credit = generator.normal(size=100)
    old = tuple(
        np.where(s.mask, scored + generator.uniform(-0.3, 0.3, len(s)), 0.0)
        for s, scored in zip(sequences, TableModel().score(sequences), strict=True)
    )
    advantages = tuple(np.where(s.mask, credit[s.episode], 0.0) for s in sequences)
    return Advantages(values=advantages), Scores(logprobs=old)


class TestOneDenominator:
    @pytest.mark.parametrize(("aggregation", "constant"), AGGREGATIONS)
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)]
    )
    def test_the_gradient_does_not_depend_on_the_split(
        self, aggregation, constant, dtype, tolerance
    ):
        sequences = random_sequences()
        advantages, scores = credited(sequences)
        (minibatch,) = batch_of(
            sequences,
            advantages=advantages,
            scores=scores,
            aggregation=aggregation,
            constant=constant,
        ).minibatches
        rows, model = minibatch.rows, TableModel(dtype)
        whole = gradient(model, rows, [range(len(rows))])
        assert whole.abs().max() > 1e-3
        splits = [micro_batches(rows, max_tokens) for max_tokens in (1, 31, 60, 100, 10_000)]
        assert len({len(split) for split in splits}) == len(splits)
        for split in splits:
            torch.testing.assert_close(gradient(model, rows, split), whole, rtol=0, atol=tolerance)
        # Two ranks, each with its share of the rows, added up.
        ranks = [gradient(model, rows, [range(k, len(rows), 2)]) for k in range(2)]
        torch.testing.assert_close(sum(ranks), whole, rtol=0, atol=tolerance)

    @pytest.mark.parametrize(("aggregation", "constant"), AGGREGATIONS)
    def test_an_episode_cut_into_two_sequences_keeps_its_weight(self, aggregation, constant):
        # The second context repeats the first as its prompt. The model sees one token back, so
        # the same tokens have the same log-probabilities in both.
        ids = [1, 2, 3, 0, 4, 2, 1, 3]
        one = (sequence("00110011", episode=0, token_ids=ids),)
        two = (
            sequence("0011", episode=0, token_ids=ids[:4]),
            sequence("00000011", episode=0, token_ids=ids),
        )
        peer = sequence("0111111", episode=1, token_ids=[0, 1, 2, 0, 1, 2, 0])
        gradients = []
        for sequences in ((*one, peer), (*two, peer)):
            model = TableModel()
            credit = (2.0, -1.0)
            (minibatch,) = batch_of(
                sequences,
                advantages=Advantages(
                    values=tuple(np.where(s.mask, credit[s.episode], 0.0) for s in sequences)
                ),
                scores=Scores(logprobs=model.score(sequences)),
                aggregation=aggregation,
                constant=constant,
            ).minibatches
            gradients.append(gradient(model, minibatch.rows, [[i] for i in range(len(sequences))]))
        assert gradients[0].abs().max() > 1e-3
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-14)

    def test_an_all_masked_row_changes_nothing(self):
        sequences = random_sequences(4)
        advantages, scores = credited(sequences)
        masked = sequence("0000", episode=50)
        zeros = np.zeros(4)
        with_masked = {
            "advantages": Advantages(values=(zeros, *advantages.values)),
            "scores": Scores(logprobs=(np.full(4, -np.inf), *scores.logprobs)),
        }
        (plain,) = batch_of(sequences, advantages=advantages, scores=scores).minibatches
        (peers,) = batch_of((masked, *sequences), **with_masked).minibatches
        model = TableModel()
        expected = gradient(model, plain.rows, [range(len(plain.rows))])
        assert torch.equal(gradient(model, peers.rows, [range(len(peers.rows))]), expected)


class TestOldLogprobs:
    def step(self, model, minibatch, learning_rate):
        """One step of gradient descent; returns the ratios before it."""
        rows = minibatch.rows
        now = model(pad(rows, "token_ids", torch.int64)).detach()
        old = pad(rows, "old_logprobs", now.dtype)
        ratio = (now - old).exp()[pad(rows, "mask", torch.bool)]
        moved = gradient(model, rows, [range(len(rows))])
        with torch.no_grad():
            model.table -= learning_rate * moved
        return ratio

    def test_are_those_before_the_first_update_in_every_epoch(self):
        model = TableModel(torch.float32)
        sequences = random_sequences(4)
        before = model.score(sequences)
        advantages, _ = credited(sequences)
        batch = batch_of(
            sequences,
            advantages=advantages,
            scores=Scores(logprobs=before),
            num_minibatches=2,
            num_epochs=2,
        )
        ratios = [self.step(model, minibatch, 0.1) for minibatch in batch.minibatches]
        assert (ratios[0] - 1).abs().max() <= 1e-6
        assert all((ratio - 1).abs().max() > 1e-4 for ratio in ratios[1:])
        for minibatch in batch.minibatches:
            for row in minibatch.rows:
                (index,) = [i for i, s in enumerate(sequences) if s.token_ids is row.token_ids]
                assert np.array_equal(row.old_logprobs, before[index])

    def test_sampled_and_scored_are_kept_apart(self):
        sequences = (sequence("011"),)
        scores = Scores(logprobs=(np.array([0.0, -3.0, -4.0]),))
        (scored,) = batch_of(sequences, scores=scores).minibatches[0].rows
        (sampled,) = batch_of(sequences, scores=scores, old_logprobs="sampled").minibatches[0].rows
        assert scored.old_logprobs.tolist() == [0, -3, -4]
        assert sampled.old_logprobs.tolist() == [0, -1, -1]
        assert scored.sampled_logprobs.tolist() == sampled.sampled_logprobs.tolist() == [0, -1, -1]


def numbered(num_episodes, per_episode=1):
    return tuple(
        sequence("011", episode=episode, token_ids=[episode, 0, 0])
        for episode in range(num_episodes)
        for _ in range(per_episode)
    )


class TestMinibatches:
    def test_every_epoch_sees_each_episode_once_in_equal_parts(self):
        batch = batch_of(numbered(10), num_minibatches=4, num_epochs=3)
        parts = [episodes_of(minibatch) for minibatch in batch.minibatches]
        assert [len(part) for part in parts] == [3, 3, 2, 2] * 3
        epochs = [sorted(e for part in parts[n : n + 4] for e in part) for n in (0, 4, 8)]
        assert epochs == [list(range(10))] * 3
        assert parts[:4] != parts[4:8] != parts[8:]

    def test_the_sequences_of_an_episode_stay_together(self):
        batch = batch_of(numbered(6, per_episode=3), num_minibatches=4)
        for minibatch in batch.minibatches:
            episodes = episodes_of(minibatch)
            assert all(episodes.count(episode) == 3 for episode in episodes)

    def test_fewer_episodes_than_minibatches(self):
        batch = batch_of(numbered(2), num_minibatches=5)
        assert [len(minibatch.rows) for minibatch in batch.minibatches] == [1, 1]

    def test_weights_are_of_the_minibatch(self):
        # 3 episodes of 2 trained tokens each in parts of 2 and 1.
        batch = batch_of(numbered(3), num_minibatches=2)
        weights = [[w for row in m.rows for w in row.weights] for m in batch.minibatches]
        assert weights == [[0, 0.25, 0.25, 0, 0.25, 0.25], [0, 0.5, 0.5]]

    def test_all_masked_sequences_are_left_out(self):
        sequences = (sequence("000", episode=7), *numbered(3))
        batch = batch_of(sequences, num_minibatches=4)
        assert sorted(e for m in batch.minibatches for e in episodes_of(m)) == [0, 1, 2]
        assert batch_of((sequence("000"),)).minibatches == ()
        assert batch_of(()).minibatches == ()

    def test_a_sequence_that_is_not_learned_counts_in_the_weights_only(self):
        sequences = [sequence("011"), sequence("01", episode=1), sequence("0111", episode=2)]
        (minibatch,) = batch_of(sequences, learned=[False, True, False]).minibatches
        (row,) = minibatch.rows
        assert row.weights.tolist() == [0, 1 / 6]
        assert row.advantages.tolist() == [0, 1]

    def test_a_minibatch_of_none_but_such_is_left_out(self):
        sequences = numbered(4)
        batch = batch_of(sequences, num_minibatches=4, learned=[True, False, False, True])
        assert sorted(episodes_of(m) for m in batch.minibatches) == [[0], [3]]

    def test_the_order_is_a_function_of_seed_step_and_epoch(self):
        def order(**options):
            batch = batch_of(numbered(20), num_minibatches=2, num_epochs=2, **options)
            return [episodes_of(minibatch) for minibatch in batch.minibatches]

        first = order(seed=1, step=3)
        np.random.seed(99)
        assert order(seed=1, step=3) == first
        assert order(seed=1, step=4) != first
        assert order(seed=2, step=3) != first

    def test_optional_fields_follow_their_sequences(self):
        sequences = numbered(5)
        ids = tuple(np.full(3, float(s.episode)) for s in sequences)
        advantages = Advantages(
            values=tuple(np.where(s.mask, 1.0, 0) for s in sequences), returns=ids
        )
        scores = Scores(logprobs=ids, reference_logprobs=ids, values=ids)
        (minibatch,) = batch_of(sequences, advantages=advantages, scores=scores).minibatches
        for row, episode in zip(minibatch.rows, episodes_of(minibatch), strict=True):
            for values in (row.returns, row.reference_logprobs, row.old_values, row.old_logprobs):
                assert values.tolist() == [episode] * 3

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ((), "values for 0 sequences of 1"),
            ((np.zeros(2),), r"shape \(2,\) for sequence 0 of 3 tokens"),
            ((np.array([0.0, np.nan, 0.0]),), "not finite"),
            ((np.array([1.0, 1.0, 1.0]),), "not 0 where the mask is"),
        ],
    )
    def test_wrong_advantages_are_refused(self, values, message):
        with pytest.raises(ValueError, match=message):
            check_advantages((sequence("011"),), Advantages(values=values))


def test_an_episode_of_one_trained_token_is_an_episode():
    # Two episodes: 1 / (2 x 1) for the token of one, 1 / (2 x 2) for each of the other's.
    one, two = token_weights([sequence("01"), sequence("011", episode=1)], "episode-mean")
    assert one.tolist() == [0, 0.5]
    assert two.tolist() == [0, 0.25, 0.25]


def test_one_value_where_nothing_is_trained_is_refused():
    wrong = Advantages(values=(np.array([0.0, 1.0, 1.0]),))  # on one of two untrained tokens
    with pytest.raises(ValueError, match="not 0 where the mask is"):
        check_advantages([sequence("001")], wrong)


def test_a_batch_is_for_the_policy_and_its_rows_name_their_tasks():
    batch = batch_of([attrs.evolve(sequence("01"), task="room_3")])
    assert not batch.critic_only
    assert [row.task for row in batch.minibatches[0].rows] == ["room_3"]
