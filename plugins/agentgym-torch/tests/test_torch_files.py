import pytest
import torch

from agentgym_core import hf
from agentgym_core.model import ModelConfig


def test_a_resumed_run_is_equal_bit_for_bit(training, start_trainer, tmp_path):
    batches = [
        training.batch(training.rows(4, seed=s), training.rows(3, seed=s + 50), step=s)
        for s in range(4)
    ]

    def start():
        return start_trainer(learning_rate=0.01, schedule="cosine", weight_decay=0.1)

    whole = start()
    metrics = [whole.update(each, training.loss) for each in batches]
    first = start()
    for each in batches[:2]:
        first.update(each, training.loss)
    torch.manual_seed(123)
    first.save(tmp_path)
    number = torch.rand(1)
    second = start()
    second.load(tmp_path)
    assert torch.equal(torch.rand(1), number)
    training.assert_same_state(training.state(first), training.state(second))
    assert [second.update(each, training.loss) for each in batches[2:]] == metrics[2:]
    training.assert_same_state(training.state(whole), training.state(second))


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_resumed_reference_is_the_one_that_it_was(training, start_trainer, refreshed, tmp_path):
    """The policy of the start, or of the last refresh; and it can be refreshed again."""
    needs = frozenset({"logprobs", "reference_logprobs"})
    rows = training.rows(4)

    def start():
        return start_trainer({"needs": needs}, learning_rate=0.01)

    def reference(trainer):
        return [line.tolist() for line in trainer.score(rows, needs).reference_logprobs]

    first = start()
    first.update(training.batch(rows), training.loss)
    if refreshed:
        first.refresh_reference()
    first.update(training.batch(rows, step=1), training.loss)
    first.save(tmp_path)
    assert (tmp_path / "reference.safetensors").exists() == refreshed
    second = start()
    second.load(tmp_path)
    assert reference(second) == reference(first)
    assert (reference(second) == reference(start())) is not refreshed
    second.save(tmp_path / "again")
    assert (tmp_path / "again" / "reference.safetensors").exists() == refreshed
    for trainer in (first, second):
        trainer.refresh_reference()
    assert reference(second) == reference(first)


def test_the_export_is_a_model_that_loads(training, start_trainer, model, plain_logprobs, tmp_path):
    trainer = start_trainer(learning_rate=0.01)
    trainer.update(training.batch(training.rows(4)), training.loss)
    trainer.export(tmp_path / "policy")
    config = ModelConfig(path=str(tmp_path / "policy"))
    loaded = hf.load_causal_lm(config)
    for (name, tensor), (other, copied) in zip(
        trainer.weights(), loaded.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(tensor, copied)
    tokenizers = [hf.load_tokenizer(c) for c in (config, model)]
    first, second = (t.encode("waa wbc: 12", add_special_tokens=False) for t in tokenizers)
    assert first == second
    assert tokenizers[0].chat_template == tokenizers[1].chat_template


def test_tied_embeddings_are_one_parameter_that_stays_tied(training, start_trainer):
    trainer = start_trainer(learning_rate=0.01)
    names = [name for name, _ in trainer.weights()]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    trainer.update(training.batch(training.rows(4)), training.loss)
    policy = trainer._policy
    assert policy.lm_head.weight is policy.model.embed_tokens.weight


def test_closing_frees_the_model(start_trainer):
    trainer = start_trainer()
    trainer.close()
    assert trainer._policy is None
