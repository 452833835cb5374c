import asyncio
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentgym_core.types import Ending, Episode, Group, Scores, Task, TokenTensors, Turn
from agentgym_ppo.gae import GAE
from agentgym_ppo.gae_turn import TurnGAE
from agentgym_ppo.ppo import PPO


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def tensors(**fields):
    """One row of three tokens of which the middle one is masked; ratio 1.5 and 0.5."""
    old = row(0.2, 0.5, 0.4).log()
    values = {
        "logprobs_NT": row(0.3, 0.9, 0.2).log(),
        "mask_NT": torch.tensor([[True, False, True]]),
        "advantages_NT": row(1.0, 0.0, -1.0),
        "old_logprobs_NT": old,
        "sampled_logprobs_NT": old,
        "reference_logprobs_NT": row(0.6, 0.1, 0.2).log(),
        "values_NT": row(2.0, 9.0, 1.25),
        "old_values_NT": row(1.0, 9.0, 1.0),
        "returns_NT": row(3.0, 0.0, 3.0),
    }
    return TokenTensors(**(values | fields))


def test_loss_by_hand():
    # Policy: r = 1.5, A = 1: -min(1.5, 1.28) = -1.28.  r = 0.5, A = -1: -min(-0.5, -0.8) = 0.8.
    # Value, clip 0.5: max(1, (1.5 - 3)^2) / 2 = 1.125; 1.25 is near: 1.75^2 / 2 = 1.53125.
    algorithm = PPO(clip_high=0.28, value_coef=0.4, value_clip=0.5)
    loss, metrics = algorithm.loss(tensors())
    expected = [-1.28 + 0.4 * 1.125, 0, 0.8 + 0.4 * 1.53125]
    assert loss[0].tolist() == pytest.approx(expected, abs=1e-12)
    assert metrics["clip_fraction"][0].tolist() == [1, 0, 1]
    assert metrics["value_clip_fraction"][0].tolist() == [1, 0, 0]
    assert metrics["value_loss"][0].tolist() == pytest.approx([1.125, 0, 1.53125])
    # Without a clip of the value: (2 - 3)^2 / 2.
    loss, _ = PPO(value_clip=None).loss(tensors())
    assert loss[0].tolist() == pytest.approx([-1.2 + 0.25, 0, 0.8 + 0.765625], abs=1e-12)


def test_the_kl_is_added_to_both_terms():
    # First token: d = log 2, k3 = r (2 - 1 - log 2) with r = 1.5. Last token: none.
    kl = 1.5 * (1 - np.log(2))
    plain, _ = PPO(kl_coef=0.1).loss(tensors())
    loss, metrics = PPO(kl_coef=0.1).objective(tensors())
    assert (loss - plain)[0].tolist() == pytest.approx([0.1 * kl, 0, 0], abs=1e-12)
    assert {"kl", "value_loss"} <= metrics.keys()


def test_needs_follow_the_fields():
    assert PPO().needs == {"logprobs", "values"}
    assert PPO(old_logprobs="sampled").needs == {"values"}
    assert PPO(kl_coef=0.1).needs == {"logprobs", "reference_logprobs", "values"}


def test_the_critic_learns_alone_in_the_warm_up():
    assert [PPO(critic_warmup=2).critic_only(step) for step in range(4)] == [1, 1, 0, 0]
    assert not PPO().critic_only(0)


@pytest.mark.parametrize(("num_steps", "warned"), [(1, True), (4, True), (5, False)])
def test_a_warm_up_that_lasts_to_the_end_is_pointed_out(num_steps, warned, caplog):
    run = SimpleNamespace(config=SimpleNamespace(training=SimpleNamespace(num_steps=num_steps)))
    asyncio.run(PPO(critic_warmup=4).prepare(run))
    assert ("the policy stays as it is" in caplog.text) is warned


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip_low": 1.5}, "'clip_low' must be <= 1"),
        ({"clip_high": 0.0}, "'clip_high' must be > 0"),
        ({"value_coef": 0.0}, "'value_coef' must be > 0"),
        ({"value_clip": 0.0}, "'value_clip' must be > 0"),
        ({"critic_warmup": -1}, "'critic_warmup' must be >= 0"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        PPO(**fields)


def test_plain_data():
    for component in (PPO(value_clip=None), GAE(lam=0.9), TurnGAE(whiten=False)):
        assert pickle.loads(pickle.dumps(component)) == component


class Corridor:
    """A run in miniature: two turns of one token out of four, in two kinds of task.

    Token 2 is worth 1 in the first turn and in the second. One kind of task pays 5 besides,
    whatever is done: noise to a policy without a critic. Policy and critic are tables, by the
    turn and, for the critic, by the kind.
    """

    seed = 0
    algorithm_state = None

    def __init__(self, advantage):
        self.logits = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
        self.table = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
        self.advantage = advantage
        self.player = self.trainer = self

    async def groups(self, step):
        draw = np.random.default_rng(step)
        chance = self.logits.softmax(-1).detach().numpy()
        chance = chance / chance.sum(-1, keepdims=True)
        return tuple(
            self.group(
                kind, [[draw.choice(4, p=chance[turn]) for turn in (0, 1)] for _ in range(8)]
            )
            for kind in (0, 1)
        )

    def group(self, kind, attempts):
        def turn(place, token):
            return Turn(
                sequence=0,
                prompt_ids=(kind,),
                token_ids=(int(token),),
                logprobs=(self.logits.log_softmax(-1)[place, token].item(),),
                finish_reason="stop",
                policy_version=0,
                text="",
                reward=float(token == 2) + 5.0 * kind * place,
                rounds=1,
            )

        episodes = tuple(
            Episode(
                task=Task(id=f"kind_{kind}"),
                environment="corridor",
                sample=sample,
                seed=0,
                max_rounds=2,
                turns=(turn(0, first), turn(1, second)),
                messages=(),
                ending=Ending.DONE,
                success=False,
            )
            for sample, (first, second) in enumerate(attempts)
        )
        return Group(task=Task(id=f"kind_{kind}"), environment="corridor", episodes=episodes)

    def evaluate(self, token_ids):
        """Of the four tokens kind, said, kind, said: log-probabilities and values."""
        kind = token_ids[0]
        logprobs, values = self.logits.log_softmax(-1), self.table
        zero = torch.zeros((), dtype=torch.float64)
        return (
            torch.stack([zero, logprobs[0, token_ids[1]], zero, logprobs[1, token_ids[3]]]),
            torch.stack([zero, values[0, kind], zero, values[1, kind]]),
        )

    def score(self, sequences, needs):
        lines = [[x.detach().numpy() for x in self.evaluate(s.token_ids)] for s in sequences]
        return Scores(
            logprobs=tuple(line[0] for line in lines),
            values=tuple(line[1] for line in lines),
            final_values=np.zeros(len(sequences)),
        )

    def update(self, batch, loss):
        for minibatch in batch.minibatches:

            def stacked(name, rows=minibatch.rows):
                return torch.from_numpy(np.stack([getattr(r, name) for r in rows]))

            pairs = [self.evaluate(r.token_ids) for r in minibatch.rows]
            tokens = TokenTensors(
                logprobs_NT=torch.stack([pair[0] for pair in pairs]),
                values_NT=torch.stack([pair[1] for pair in pairs]),
                **{
                    f"{name}_NT": stacked(name)
                    for name in (
                        "mask",
                        "advantages",
                        "old_logprobs",
                        "sampled_logprobs",
                        "old_values",
                        "returns",
                    )
                },
            )
            loss_NT, _ = loss(tokens)
            total = (stacked("weights") * loss_NT).sum()
            policy, critic = torch.autograd.grad(total, (self.logits, self.table))
            with torch.no_grad():
                self.table -= 2.0 * critic
                if not batch.critic_only:
                    self.logits -= 2.0 * policy
        return {}

    def beating(self, loss):
        return loss

    async def publish(self, version):
        pass

    def train(self, algorithm, num_steps):
        for step in range(num_steps):
            asyncio.run(algorithm.train_step(self, step))
        return self.logits.softmax(-1).detach().numpy(), self.table.detach().numpy()


@pytest.mark.parametrize("advantage", [GAE(lam=0.9), TurnGAE(), GAE(whiten=False)])
def test_it_learns_what_is_rewarded_and_what_states_are_worth(advantage):
    corridor = Corridor(advantage)
    chance, table = corridor.train(PPO(num_minibatches=2, num_epochs=2, value_clip=None), 60)
    assert chance[:, 2].min() > 0.9
    # By turn and kind: two tokens are to come, then one; and 5 in the second kind.
    discount = advantage.gamma
    expected = [[1 + discount, 1 + 6 * discount], [1, 6]]
    assert np.abs(table - expected).max() < 0.3


def test_the_warm_up_teaches_the_critic_and_leaves_the_policy():
    corridor = Corridor(GAE())
    chance, table = corridor.train(PPO(critic_warmup=20, value_clip=None), 20)
    assert chance.tolist() == [[0.25] * 4] * 2
    assert np.abs(table - [[0.5, 5.5], [0.25, 5.25]]).max() < 0.4
