"""The critic: its values, its gradient, and that it and the policy leave each other alone."""

import copy

import attrs
import numpy as np
import pytest
import torch

from agentgym_core import hf
from agentgym_core.errors import ConfigError
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.types import TokenSequence
from agentgym_torch.backend import TorchBackend
from agentgym_torch.critic import CriticOptions

VALUES = frozenset({"values", "final_values"})
BOTH = pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])


@pytest.fixture
def start(start_trainer):
    """Start a trainer with a critic whose head is not 0, unless told so."""

    def start(shared=False, head=0.05, **options):
        critic = CriticOptions(shared=shared, learning_rate=options.pop("critic_rate", None))
        trainer = start_trainer({"needs": VALUES}, critic=critic, **options)
        with torch.no_grad():
            values = torch.sin(torch.arange(33.0)) * head
            trainer._critic._head.weight.copy_(values[None, :32])
            trainer._critic._head.bias.copy_(values[32:])
        return trainer

    return start


@pytest.fixture
def rows(training):
    """Rows with targets for the critic."""

    def make(number, seed=0):
        draw = np.random.default_rng(seed + 100)
        return [
            attrs.evolve(
                row,
                returns=row.mask * draw.normal(size=len(row)),
                old_values=row.mask * draw.normal(size=len(row)),
            )
            for row in training.rows(number, seed)
        ]

    return make


def value_loss(tokens):
    error_NT = tokens.values_NT - tokens.returns_NT
    return 0.5 * error_NT.square(), {"value": tokens.values_NT}


def both_losses(tokens):
    ratio_NT = (tokens.logprobs_NT - tokens.old_logprobs_NT).exp()
    return value_loss(tokens)[0] - ratio_NT * tokens.advantages_NT, {}


def critic_only(batch):
    return attrs.evolve(batch, critic_only=True)


def plain_values(trainer, token_ids):
    """The value of every state, T + 1 of them from the empty one on, by one plain forward pass."""
    critic = trainer._critic
    trunk = trainer._policy.base_model if critic.trunk is None else critic.trunk
    hidden_NTH = trunk(input_ids=torch.as_tensor(token_ids)[None], use_cache=False)[0]
    return torch.cat([torch.zeros(1), critic._head(hidden_NTH)[0, :, 0]])


@BOTH
def test_values_begin_at_0(start_trainer, training, shared):
    trainer = start_trainer({"needs": VALUES}, critic=CriticOptions(shared=shared))
    sequences = training.rows(4)
    scores = trainer.score([_sequence(row, truncated=True) for row in sequences], VALUES)
    assert all(not values.any() for values in scores.values)
    assert scores.final_values.tolist() == [0, 0, 0, 0]


@BOTH
@pytest.mark.parametrize("budget", [1, 50, 10_000])
def test_values_are_those_of_one_plain_pass(start, training, shared, budget):
    """Of the state before each token; after the last one only where the episode was cut."""
    trainer = start(shared, tokens_per_micro_batch=budget)
    sequences = [
        _sequence(row, truncated=number % 3 == 0) for number, row in enumerate(training.rows(9))
    ]
    scores = trainer.score(sequences, VALUES)
    assert scores.logprobs is None
    for number, sequence in enumerate(sequences):
        with torch.no_grad():
            states = plain_values(trainer, sequence.token_ids).double().numpy()
        assert np.abs(scores.values[number] - states[:-1] * sequence.mask).max() < 1e-6
        assert np.ptp(scores.values[number][sequence.mask]) > 0.001 or sequence.mask.sum() == 1
        assert abs(scores.final_values[number] - states[-1] * sequence.truncated) < 1e-6


@BOTH
def test_the_gradient_is_that_of_the_weighted_sum(start, training, rows, shared):
    """Independently: one row at a time, unpadded, through both losses."""
    trainer = start(shared, max_grad_norm=None, tokens_per_micro_batch=64)
    batch = rows(7)
    twin = copy.deepcopy([trainer._policy, trainer._critic])
    policy, critic = twin
    total = 0
    for row in batch:
        ids, mask = torch.as_tensor(row.token_ids), torch.as_tensor(row.mask[1:])
        numbers = {
            name: torch.as_tensor(getattr(row, name)[1:]).float()
            for name in ("weights", "advantages", "returns")
        }
        trunk = policy.base_model if shared else critic.trunk
        values = critic._head(trunk(input_ids=ids[None], use_cache=False)[0])[0, :-1, 0]
        logits = policy(input_ids=ids[None], use_cache=False).logits[0, :-1]
        logprobs = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
        loss = 0.5 * (values - numbers["returns"]) ** 2
        loss = loss - (logprobs + 4.0).exp() * numbers["advantages"]
        total = total + (loss * numbers["weights"])[mask].sum()
    total.backward()
    expected = [
        [p.grad for p in policy.parameters()],
        [p.grad for p in critic.parameters()],
    ]
    for place in (0, 1):
        trainer = start(shared, max_grad_norm=None, tokens_per_micro_batch=64)
        found = training.gradients(trainer, batch, both_losses, place)
        assert training.difference(found, expected[place]) < 1e-5


@BOTH
@pytest.mark.parametrize("budget", [1, 40, 150, 100_000])
def test_the_gradient_does_not_depend_on_the_micro_batches(start, training, rows, shared, budget):
    for place in (0, 1):
        whole, cut = (
            training.gradients(
                start(shared, tokens_per_micro_batch=tokens), rows(12), both_losses, place
            )
            for tokens in (400, budget)
        )
        assert training.difference(cut, whole) < 2e-6


@BOTH
def test_values_outside_the_mask_do_not_matter(start, training, rows, shared):
    """Nor do targets and old values that stand there."""
    wild = [
        attrs.evolve(
            row,
            returns=np.where(row.mask, row.returns, 1e6),
            old_values=np.where(row.mask, row.old_values, np.nan),
        )
        for row in rows(5)
    ]
    for place in (0, 1):
        found, expected = (
            training.gradients(start(shared), each, both_losses, place) for each in (wild, rows(5))
        )
        assert training.difference(found, expected) == 0


@pytest.mark.parametrize(("rate", "moved"), [(None, 0.01), (0.002, 0.002)])
def test_the_critic_has_its_own_learning_rate(start, training, rows, rate, moved):
    """The first step of AdamW is lr x sign(g); both follow one schedule, half at step 5 of 10."""
    trainer = start(learning_rate=0.01, critic_rate=rate, schedule="linear")
    before = copy.deepcopy(trainer._critic.state())
    policy = {name: tensor.clone() for name, tensor in trainer.weights()}
    metrics = trainer.update(training.batch(rows(6), step=5), both_losses)
    bias = trainer._critic.state()["head.bias"] - before["head.bias"]
    assert abs(float(bias.detach())) == pytest.approx(moved / 2, rel=1e-4)
    steps = [float((tensor - policy[name]).abs().max()) for name, tensor in trainer.weights()]
    assert max(steps) == pytest.approx(0.005, rel=1e-3)
    assert metrics["learning_rate"] == pytest.approx(0.005)
    assert metrics["critic_grad_norm"] > 0


def test_the_norms_of_policy_and_critic_are_clipped_apart(start, training, rows):
    free = [training.gradients(start(max_grad_norm=None), rows(6), both_losses, p) for p in (0, 1)]
    norms = [sum(float(g.square().sum()) for g in each) ** 0.5 for each in free]
    limit = min(norms) / 2
    for place in (0, 1):
        clipped = training.gradients(start(max_grad_norm=limit), rows(6), both_losses, place)
        expected = [g * limit / norms[place] for g in free[place]]
        assert training.difference(clipped, expected) < 1e-5


def test_a_loss_of_values_alone_leaves_the_policy(start, training, rows):
    """Momentum from steps before and weight decay included."""
    trainer = start(learning_rate=0.01, weight_decay=0.5)
    trainer.update(training.batch(rows(4)), both_losses)
    before = training.state(trainer)
    metrics = trainer.update(training.batch(rows(4, seed=1), rows(3, seed=2)), value_loss)
    after = training.state(trainer)
    training.assert_same_state(before[:1], after[:1])
    assert not torch.equal(before[1][0]["head.weight"], after[1][0]["head.weight"])
    assert metrics["grad_norm"] == 0


@BOTH
@pytest.mark.parametrize("warm", [False, True])
def test_a_step_for_the_critic_only_leaves_the_policy(start, training, rows, shared, warm):
    """Whatever the loss says of it, and also where they share a trunk."""
    trainer = start(shared, learning_rate=0.01, weight_decay=0.5)
    if warm:
        trainer.update(training.batch(rows(4)), both_losses)
    before = training.state(trainer)
    batch = training.batch(rows(4, seed=1), rows(3, seed=2))
    metrics = trainer.update(critic_only(batch), both_losses)
    after = training.state(trainer)
    training.assert_same_state(before[:1], after[:1])
    names = [n for n, t in before[1][0].items() if not torch.equal(t, after[1][0][n])]
    assert len(names) == len(after[1][0]) - (0 if shared else _num_idle(trainer, training, rows))
    assert metrics["grad_norm"] == 0
    assert metrics["critic_grad_norm"] > 0


def _num_idle(trainer, training, rows):
    """A critic's parameters whose gradient is 0."""
    return sum(not g.any() for g in training.gradients(trainer, rows(4, seed=1), value_loss, 1))


@BOTH
def test_a_step_for_the_critic_only_gives_the_head_its_gradient(start, training, rows, shared):
    batch = rows(6)
    found = []
    for only in (False, True):
        trainer = start(shared)
        hook = trainer._learners[1].optimizer.register_step_pre_hook(
            lambda *_, t=trainer: found.append(t._critic._head.weight.grad.clone())
        )
        trainer.update(attrs.evolve(training.batch(batch), critic_only=only), both_losses)
        hook.remove()
    assert training.difference(found[:1], found[1:]) < 1e-6


def test_a_loss_without_values_moves_nothing_in_a_critics_step(start, training, rows):
    trainer = start(learning_rate=0.01)
    before = training.state(trainer)
    metrics = trainer.update(critic_only(training.batch(rows(3))), training.loss)
    training.assert_same_state(before, training.state(trainer))
    assert metrics["grad_norm"] == metrics["critic_grad_norm"] == 0


def test_a_critics_step_without_a_critic_is_refused(start_trainer, training):
    with pytest.raises(ValueError, match="for the critic only, and nothing asked for one"):
        start_trainer().update(critic_only(training.batch(training.rows(2))), training.loss)


def test_there_is_a_critic_only_where_it_is_needed(start_trainer, training):
    trainer = start_trainer(critic=CriticOptions(shared=True))
    assert trainer._critic is None
    assert len(trainer._learners) == 1
    seen = []

    def loss(tokens):
        seen.append(tokens.values_NT)
        return training.loss(tokens)

    trainer.update(training.batch(training.rows(2)), loss)
    assert seen == [None]


@BOTH
@pytest.mark.parametrize("good_before", [0, 1])
def test_what_is_not_finite_leaves_policy_and_critic(start, training, rows, shared, good_before):
    trainer = start(shared, learning_rate=0.01)
    for warm in (False, True):
        if warm:
            trainer.update(training.batch(rows(4)), both_losses)
        for bad in (_infinite_value_loss, _infinite_value_gradient, _infinite_policy_gradient):
            before = training.state(trainer)
            calls = []

            def loss(tokens, calls=calls, bad=bad):
                calls.append(1)
                return (both_losses if len(calls) <= good_before else bad)(tokens)

            with pytest.raises(FloatingPointError):
                trainer.update(training.batch(*[rows(4)] * (good_before + 1)), loss)
            training.assert_same_state(before, training.state(trainer))
    twin = start(shared, learning_rate=0.01)
    twin.update(training.batch(rows(4)), both_losses)
    for each in (trainer, twin):  # no gradient lingers
        each.update(training.batch(rows(4)), both_losses)
    training.assert_same_state(training.state(trainer), training.state(twin))


def _infinite_value_loss(tokens):
    return both_losses(tokens)[0] + tokens.values_NT / 0.0, {}


def _infinite_value_gradient(tokens):
    zero_NT = tokens.values_NT - tokens.values_NT.detach()
    return both_losses(tokens)[0] + zero_NT.sqrt(), {}


def _infinite_policy_gradient(tokens):
    zero_NT = tokens.logprobs_NT - tokens.logprobs_NT.detach()
    return both_losses(tokens)[0] + zero_NT.sqrt(), {}


@BOTH
def test_a_resumed_run_is_equal_bit_for_bit(start, training, rows, shared, tmp_path):
    batches = [training.batch(rows(4, seed=s), rows(3, seed=s + 50), step=s) for s in range(4)]
    batches[0] = critic_only(batches[0])
    options = {"learning_rate": 0.01, "schedule": "cosine", "critic_rate": 0.02}
    whole = start(shared, **options)
    metrics = [whole.update(each, both_losses) for each in batches]
    for stop in range(1, 4):
        first = start(shared, **options)
        for each in batches[:stop]:
            first.update(each, both_losses)
        first.save(tmp_path / str(stop))
        second = start(shared, head=0.0, **options)
        second.load(tmp_path / str(stop))
        training.assert_same_state(training.state(first), training.state(second))
        assert [second.update(each, both_losses) for each in batches[stop:]] == metrics[stop:]
        training.assert_same_state(training.state(whole), training.state(second))


def test_another_runs_critic_is_refused(start, start_trainer, tmp_path):
    start(shared=True).save(tmp_path / "shared")
    start_trainer().save(tmp_path / "none")
    with pytest.raises(ValueError, match=r"critic\.safetensors holds another critic"):
        start().load(tmp_path / "shared")
    with pytest.raises(ValueError, match=r"critic\.safetensors is not there: .* had no critic"):
        start().load(tmp_path / "none")
    start_trainer().load(tmp_path / "shared")  # a policy goes on without it


@BOTH
def test_the_export_is_the_policy_alone(start, start_trainer, training, rows, shared, tmp_path):
    trainer = start(shared, learning_rate=0.01)
    trainer.update(training.batch(rows(4)), both_losses)
    trainer.export(tmp_path / "policy")
    loaded = dict(hf.load_causal_lm(ModelConfig(path=str(tmp_path / "policy"))).named_parameters())
    assert loaded.keys() == {name for name, _ in trainer.weights()}
    assert all(torch.equal(loaded[name], tensor) for name, tensor in trainer.weights())


@BOTH
def test_bfloat16_stays_near_float32(start, training, rows, shared):
    half, full = (start(shared, dtype=dtype) for dtype in ("bfloat16", "float32"))
    sequences = [_sequence(row, truncated=True) for row in rows(8)]
    for left, right in zip(*(t.score(sequences, VALUES).values for t in (half, full)), strict=True):
        assert 0 < np.abs(left - right).max() < 0.05
    for place in (0, 1):
        flat = [
            torch.cat([g.flatten() for g in training.gradients(t, rows(8), both_losses, place)])
            for t in (half, full)
        ]
        assert torch.cosine_similarity(*flat, dim=0) > 0.95
    assert all(tensor.dtype == torch.float32 for tensor in half._critic.parameters())


@BOTH
def test_checkpointing_layers_gives_the_same_gradient(start, training, rows, shared):
    for place in (0, 1):
        plain, again = (
            training.gradients(
                start(shared, gradient_checkpointing=on), rows(5), both_losses, place
            )
            for on in (False, True)
        )
        assert training.difference(again, plain) < 1e-6
    trainer = start(shared, gradient_checkpointing=True)
    trunk = trainer._critic.trunk or trainer._policy.base_model
    calls = []
    trunk.layers[0].self_attn.register_forward_pre_hook(lambda *_: calls.append(1))
    trainer.update(training.batch(rows(5)), value_loss)
    assert len(calls) == 2  # once forward, once more in the backward pass
    trainer.update(critic_only(training.batch(rows(5))), value_loss)


def test_a_critic_of_another_model(start_trainer, model, training, rows, tmp_path):
    sizes = ScratchModel(
        hidden_size=16, num_layers=1, num_heads=2, intermediate_size=24, max_position_embeddings=600
    )
    words = [f"w{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    hf.build_scratch(sizes, [" ".join(words)], tmp_path / "wide", seed=3)
    trainer = start_trainer({"needs": VALUES}, critic=CriticOptions(path=str(tmp_path / "wide")))
    assert trainer._critic.state()["head.weight"].shape == (1, 16)
    assert trainer._critic.trunk.config.num_hidden_layers == 1
    trainer.update(training.batch(rows(3)), both_losses)
    with pytest.raises(ConfigError, match=r"^backend\.critic\.path: .*nowhere"):
        start_trainer({"needs": VALUES}, critic=CriticOptions(path=str(tmp_path / "nowhere")))
    hf.build_scratch(sizes, ["waa"], tmp_path / "narrow", seed=3)
    with pytest.raises(ValueError, match=r"critic: .*narrow\) knows \d+ tokens and the policy"):
        start_trainer({"needs": VALUES}, critic=CriticOptions(path=str(tmp_path / "narrow")))


def test_fields_are_checked():
    with pytest.raises(ValueError, match="`path` has no effect with `shared: true`"):
        CriticOptions(shared=True, path="here")
    with pytest.raises(ValueError, match="learning_rate"):
        CriticOptions(learning_rate=0.0)


def test_a_critic_that_nothing_asks_for_is_a_warning(model, context, caplog):
    options = CriticOptions(learning_rate=0.1)
    TorchBackend(device="cpu", critic=options).start(context())
    (record,) = caplog.records
    assert "`critic` has no effect" in record.getMessage()
    caplog.clear()
    TorchBackend(device="cpu", critic=options).start(context(needs=VALUES))
    TorchBackend(device="cpu").start(context())
    assert not caplog.records


def _sequence(row, truncated):
    return TokenSequence(
        token_ids=row.token_ids,
        mask=row.mask,
        logprobs=row.sampled_logprobs,
        rewards=np.zeros(len(row)),
        turns=np.where(row.mask, 0, -1),
        versions=np.where(row.mask, 0, -1),
        episode=0,
        group=0,
        truncated=truncated,
    )
