import numpy as np
import pytest
import torch

LOGPROBS = frozenset({"logprobs"})


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("budget", [1, 50, 10_000])
def test_scores_are_those_of_one_plain_pass(
    training, start_trainer, plain_logprobs, temperature, budget
):
    trainer = start_trainer({"temperature": temperature}, tokens_per_micro_batch=budget)
    rows = training.rows(9)
    scores = trainer.score(rows, LOGPROBS)
    assert scores.reference_logprobs is None
    for row, logprobs in zip(rows, scores.logprobs, strict=True):
        expected = plain_logprobs(trainer._policy, row.token_ids, temperature) * row.mask
        assert np.abs(logprobs - expected).max() < 1e-5
        assert logprobs.dtype == np.float64


def test_left_padding_with_its_positions_gives_the_same_scores(start_trainer, sequence):
    """We pad on the right. Padded on the left, with positions from the mask, the model agrees."""
    trainer = start_trainer()
    ids = [3, 14, 15, 9, 26, 5]
    scores = trainer.score([sequence(ids, [False] * 3 + [True] * 3)] * 2, LOGPROBS)
    padded = torch.tensor([[0] * 4 + ids])
    seen = torch.tensor([[0] * 4 + [1] * 6])
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = trainer._policy(
            input_ids=padded, attention_mask=seen, position_ids=positions, use_cache=False
        ).logits
    table = torch.log_softmax(logits[0, 6:9], dim=-1)
    expected = table.gather(1, torch.tensor(ids[3:])[:, None])[:, 0].numpy()
    assert np.abs(scores.logprobs[1][3:] - expected).max() < 1e-5


def test_the_reference_is_the_policy_of_the_start(training, start_trainer):
    trainer = start_trainer({"needs": frozenset({"reference_logprobs"})}, learning_rate=0.01)
    rows = training.rows(4)
    needs = LOGPROBS | {"reference_logprobs"}
    before = trainer.score(rows, needs)
    trainer.update(training.batch(rows), training.loss)
    after = trainer.score(rows, needs)
    for index in range(4):
        assert before.logprobs[index].tolist() == before.reference_logprobs[index].tolist()
        assert before.logprobs[index].tolist() == after.reference_logprobs[index].tolist()
        assert np.abs(before.logprobs[index] - after.logprobs[index]).max() > 0.01


def test_a_refreshed_reference_is_the_policy_of_that_time(training, start_trainer):
    needs = LOGPROBS | {"reference_logprobs"}
    trainer = start_trainer({"needs": needs}, learning_rate=0.01)
    rows = training.rows(4)
    trainer.update(training.batch(rows), training.loss)
    policy = trainer.score(rows, needs).logprobs
    trainer.refresh_reference()
    for _ in range(2):
        refreshed = trainer.score(rows, needs)
        for found, expected in zip(refreshed.reference_logprobs, policy, strict=True):
            assert found.tolist() == expected.tolist()
        trainer.update(training.batch(rows), training.loss)
    assert np.abs(refreshed.logprobs[0] - policy[0]).max() > 0.01


def test_no_reference_no_refresh(start_trainer):
    with pytest.raises(ValueError, match="the trainer has no reference_logprobs"):
        start_trainer().refresh_reference()


def test_what_is_not_offered_is_refused_by_name(training, start_trainer):
    with pytest.raises(ValueError, match="the trainer has no entropies"):
        start_trainer({"needs": frozenset({"entropies"})})
    trainer = start_trainer()
    with pytest.raises(ValueError, match="no reference_logprobs and no values"):
        trainer.score(training.rows(1), frozenset({"values", "reference_logprobs"}))


def test_a_first_token_has_no_logprob(start_trainer, sequence):
    with pytest.raises(ValueError, match="sequence 1 is to be trained on its first token"):
        start_trainer().score([sequence([1, 2], [0, 1]), sequence([1, 2], [1, 1])], LOGPROBS)


def test_a_sequence_without_trained_tokens_scores_nothing(start_trainer, sequence):
    scores = start_trainer().score([sequence([1, 2], [0, 0]), sequence([1, 2], [0, 1])], LOGPROBS)
    assert scores.logprobs[0].tolist() == [0, 0]
    assert scores.logprobs[1][1] < 0
