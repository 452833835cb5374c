"""One of several ranks, started by `test_torch_ranks.py`: compares itself with a trainer alone."""

import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch

from agentgym_core.errors import RankError
from agentgym_core.model import ModelConfig
from agentgym_core.protocols import StartContext
from agentgym_core.types import Batch, Minibatch, Row, TokenSequence
from agentgym_torch.backend import TorchBackend
from agentgym_torch.critic import CriticOptions

RANDOM = np.random.default_rng(0)
BACKEND = TorchBackend(
    device="cpu", learning_rate=1e-3, tokens_per_micro_batch=24, peer_timeout_seconds=60
)


def make_rows(num: int) -> list[Row]:
    rows = []
    for number in range(num):
        length = int(RANDOM.integers(3, 14))
        mask = np.arange(length) >= 2
        rows.append(
            Row(
                token_ids=RANDOM.integers(0, 40, length),
                mask=mask,
                weights=mask / 40.0,
                advantages=mask * RANDOM.normal(size=length),
                old_logprobs=mask * -4.0,
                sampled_logprobs=mask * -4.0,
                old_values=mask * 0.0,
                returns=mask * RANDOM.normal(size=length),
                task=f"task-{number}",
            )
        )
    return rows


def sequence(row: Row) -> TokenSequence:
    zeros = np.zeros(len(row.token_ids))
    turns = np.where(row.mask, 0, -1)
    return TokenSequence(
        token_ids=row.token_ids,
        mask=row.mask,
        logprobs=zeros,
        rewards=zeros,
        turns=turns,
        versions=turns,
        episode=0,
        group=0,
        truncated=len(zeros) % 2 == 0,
    )


def loss(tokens):
    ratio_NT = (tokens.logprobs_NT - tokens.old_logprobs_NT).exp()
    policy_NT = -ratio_NT * tokens.advantages_NT
    metrics = {"logprob": tokens.logprobs_NT, "value": tokens.values_NT}
    return policy_NT + (tokens.values_NT - tokens.returns_NT).square(), metrics


def weights(trainer) -> dict[str, torch.Tensor]:
    own = {f"critic.{name}": tensor for name, tensor in trainer._critic.state().items()}
    return {name: tensor.detach().clone() for name, tensor in (*trainer.weights(), *own.items())}


def check_equal(ours, theirs, atol: float = 1e-6, rtol: float = 0.0) -> None:
    for name, tensor in theirs.items():
        np.testing.assert_allclose(ours[name], tensor, rtol=rtol, atol=atol, err_msg=name)


def main(model: str, folder: Path, end: str) -> None:
    ranks = BACKEND.connect()
    needs = frozenset({"logprobs", "values", "final_values"})
    context = StartContext(model=ModelConfig(path=model), seed=0, num_steps=10, needs=needs)
    backend = attrs.evolve(BACKEND, critic=CriticOptions(shared=end == "leave"))
    alone = backend.start(context)
    ours = backend.start(attrs.evolve(context, ranks=ranks))
    for trainer in (alone, ours):
        with torch.no_grad():
            trainer._critic._head.weight.copy_(torch.linspace(-0.1, 0.1, 32)[None])

    rows = make_rows(7)
    scores = [t.score([sequence(r) for r in rows], needs) for t in (ours, alone)]
    for name in ("logprobs", "values", "final_values"):
        for our, their in zip(*(getattr(each, name) for each in scores), strict=True):
            np.testing.assert_allclose(our, their, rtol=0, atol=1e-6)
    assert np.count_nonzero(scores[0].final_values) in range(1, 7)

    # More rows than ranks, as many, fewer, and none that is trained.
    untrained = attrs.evolve(rows[0], mask=np.zeros_like(rows[0].mask))
    for step, num in enumerate((7, ranks.size, 1)):
        minibatches = (Minibatch(rows=make_rows(num)), Minibatch(rows=(untrained,)))
        batch = Batch(step=step, minibatches=minibatches, critic_only=num == ranks.size)
        found, expected = ours.update(batch, loss), alone.update(batch, loss)
        assert found.keys() == expected.keys()
        check_equal(found, expected, rtol=1e-6)
        # Adam divides a gradient by its own size: where it is nearly 0, as for the biases of keys,
        # the rounding of a sum in another order is a share of the step. A wrong gradient is all of
        # it, and a wrong size shows in the loss and the norm above.
        check_equal(weights(ours), weights(alone), atol=0.01 * BACKEND.learning_rate)
    theirs = ranks.gather(weights(ours))
    assert all(torch.equal(one[n], t) for one in theirs for n, t in theirs[0].items())

    # One row is bad, and lies with one of the ranks: all refuse, and go on as they were.
    bad = make_rows(5)
    bad[3] = attrs.evolve(bad[3], advantages=bad[3].advantages + np.where(bad[3].mask, np.inf, 0))
    before = weights(ours)
    batch = Batch(step=3, minibatches=(Minibatch(rows=make_rows(3)), Minibatch(rows=tuple(bad))))
    with pytest.raises(FloatingPointError, match="It comes from task task-3"):
        ours.update(batch, loss)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(ours).items())

    ours.save(folder / f"rank-{ranks.rank}")
    policies = [folder / f"rank-{rank}" / "policy.safetensors" for rank in range(ranks.size)]
    saved = [policy.exists() for policy in policies]
    assert ranks.gather(saved)[0] == [True] + [False] * (ranks.size - 1)

    if end == "leave" and ranks.rank == 1:
        return
    try:
        ours.update(Batch(step=4, minibatches=(Minibatch(rows=make_rows(4)),)), loss)
    except RankError as error:
        sys.stdout.write(f"RankError: {error}\n")
    ranks.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
