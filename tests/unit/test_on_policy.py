import asyncio
import pickle

import attrs
import numpy as np
import pytest
import torch

from agentgym_core.errors import ComponentError
from agentgym_core.on_policy import OnPolicy
from agentgym_core.protocols import StepReport
from agentgym_core.types import (
    Advantages,
    Ending,
    Episode,
    Group,
    Sampling,
    Scores,
    Task,
    TokenTensors,
    Turn,
)


@attrs.frozen(kw_only=True)
class Plain(OnPolicy):
    """The smallest algorithm."""

    def loss(self, tokens):
        return -tokens.logprobs_NT * tokens.advantages_NT, {}


@attrs.frozen(kw_only=True)
class NearReference(Plain):
    @property
    def needs(self):
        return super().needs | {"reference_logprobs"}


@attrs.frozen(kw_only=True)
class Credit:
    """Every trained token gets the same."""

    value: float = 1.0
    returns: bool = False
    needs: frozenset = frozenset()

    def __call__(self, sequences, scores):
        return Advantages(
            values=tuple(s.mask * self.value for s in sequences),
            returns=tuple(s.mask * 0.0 for s in sequences) if self.returns else None,
            metrics={"credit": self.value},
        )


class Run:
    """Records what a training step asks of a run, in order."""

    seed = 5

    def __init__(self, groups, advantage):
        self._groups = groups
        self.advantage = advantage
        self.player = self.trainer = self
        self.calls = []
        self.batch = None

    async def groups(self, step):
        self.calls.append(("groups", step))
        return self._groups

    def score(self, sequences, needs):
        self.calls.append(("score", needs))
        ones = tuple(np.where(s.mask, -1.5, 0.0) for s in sequences)
        return Scores(
            logprobs=ones if "logprobs" in needs else None,
            reference_logprobs=ones if "reference_logprobs" in needs else None,
        )

    def update(self, batch, loss):
        self.calls.append(("update", loss))
        self.batch = batch
        return {"loss": 0.25}

    def beating(self, loss):
        return loss

    async def publish(self, version):
        self.calls.append(("publish", version))

    def step(self, algorithm, step=7):
        return asyncio.run(algorithm.train_step(self, step))

    @property
    def names(self):
        return [name for name, _ in self.calls]


def group(*rewards, trained=True):
    task = Task(id="room_1")
    episodes = tuple(
        Episode(
            task=task,
            environment="room",
            sample=sample,
            seed=0,
            max_rounds=3,
            turns=(
                Turn(
                    sequence=0,
                    prompt_ids=(1, 2),
                    token_ids=(3, 4),
                    logprobs=(-1.0, -1.25),
                    finish_reason="stop",
                    policy_version=7,
                    text="",
                    reward=reward,
                    trained=trained,
                    rounds=1,
                ),
            ),
            messages=(),
            ending=Ending.DONE,
            success=reward > 0,
        )
        for sample, reward in enumerate(rewards)
    )
    return Group(task=task, environment="room", episodes=episodes)


def test_a_step_plays_gives_credit_learns_and_publishes():
    run = Run((group(1.0, 0.0), group(0.0)), Credit(needs=frozenset({"values"})))
    algorithm = Plain()
    report = run.step(algorithm)
    assert run.calls == [
        ("groups", 7),
        ("score", {"logprobs", "values"}),
        ("update", algorithm.objective),
        ("publish", 8),
    ]
    assert report.step == 7
    assert report.groups is run._groups
    assert [s.episode for s in report.sequences] == [0, 1, 2]
    assert [v.tolist() for v in report.advantages.values] == [[0, 0, 1, 1]] * 3
    metrics = {"episodes": 3, "reward": 1 / 3, "success": 1 / 3, "rounds": 1, "tokens": 2}
    # The trainer says -1.5 where the engine said -1 and -1.25.
    metrics |= {"credit": 1, "loss": 0.25, "update_skipped": 0}
    metrics |= {"sampling_gap": 0.375, "sampling_gap_max": 0.5}
    assert report.metrics == pytest.approx(report.metrics | metrics, abs=1e-12)


def test_the_batch_follows_the_fields():
    run = Run((group(1.0, 0.0), group(0.0, 1.0)), Credit())
    fields = {"aggregation": "constant", "aggregation_constant": 10.0}
    run.step(Plain(num_minibatches=2, num_epochs=3, **fields))
    assert run.batch.step == 7
    assert [len(minibatch.rows) for minibatch in run.batch.minibatches] == [2] * 6
    row = run.batch.minibatches[0].rows[0]
    assert row.weights.tolist() == [0, 0, 1 / 20, 1 / 20]
    assert row.old_logprobs.tolist() == [0, 0, -1.5, -1.5]
    run.step(Plain(old_logprobs="sampled"))
    assert run.batch.minibatches[0].rows[0].old_logprobs.tolist() == [0, 0, -1, -1.25]


def test_sampled_old_logprobs_spare_the_scoring():
    assert Plain().needs == {"logprobs"}
    assert Plain(old_logprobs="sampled").needs == frozenset()


@pytest.mark.parametrize("groups", [(), (group(), group()), (group(1.0, 0.0, trained=False),)])
def test_with_nothing_to_train_nothing_is_scored_or_updated(groups):
    run = Run(groups, Credit())
    report = run.step(Plain())
    assert run.names == ["groups", "publish"]
    assert report.metrics["update_skipped"] == 1
    assert report.metrics["episodes"] == sum(len(g.episodes) for g in groups)
    assert report.advantages is None


def test_without_any_signal_the_weights_are_left_alone():
    run = Run((group(1.0, 1.0),), Credit(value=0.0))
    report = run.step(Plain())
    assert run.names == ["groups", "score", "publish"]
    assert report.metrics["update_skipped"] == 1
    assert report.metrics["credit"] == 0
    assert len(report.advantages.values) == 2


@pytest.mark.parametrize("values", [(), (np.full(4, np.nan), np.zeros(4))])
def test_a_wrong_estimator_is_named(values):
    class Wrong(Credit):
        def __call__(self, sequences, scores):
            return Advantages(values=values)

    run = Run((group(1.0, 0.0),), Wrong())
    with pytest.raises(ComponentError, match=r"Wrong \(module .*: advantages: ValueError"):
        run.step(Plain())


def test_sequences_without_credit_are_spared():
    class Reward(Credit):
        def __call__(self, sequences, scores):
            return Advantages(values=tuple(s.rewards for s in sequences))

    run = Run((group(1.0, 0.0, 0.0, -1.0),), Reward())
    run.step(Plain())
    (minibatch,) = run.batch.minibatches
    assert sorted(row.advantages.sum() for row in minibatch.rows) == [-1, 1]
    assert [row.weights.tolist() for row in minibatch.rows] == [[0, 0, 1 / 8, 1 / 8]] * 2


@pytest.mark.parametrize(
    ("algorithm", "advantage"),
    [(NearReference(), Credit(value=0.0)), (Plain(), Credit(value=0.0, returns=True))],
)
def test_a_reference_or_value_targets_are_a_signal(algorithm, advantage):
    run = Run((group(1.0, 1.0),), advantage)
    assert run.step(algorithm).metrics["update_skipped"] == 0
    assert "update" in run.names


def test_a_training_fault_is_not_hidden():
    run = Run((group(1.0, 0.0),), Credit())

    def explode(batch, loss):
        raise FloatingPointError("loss is nan")

    run.update = explode
    with pytest.raises(FloatingPointError):
        run.step(Plain())
    assert "publish" not in run.names


@pytest.mark.parametrize("trained", [True, False])
def test_when_the_reference_is_refreshed_is_a_function_of_the_step(trained):
    """Whether the step has something to learn does not matter."""
    algorithm = Plain(kl_coef=0.1, reference_every=3)
    refreshed = []
    for step in range(8):
        run = Run((group(1.0, 0.0, trained=trained),), Credit())
        run.refresh_reference = lambda step=step: refreshed.append(step)
        run.step(algorithm, step)
    assert refreshed == [3, 6]


class KLRun(Run):
    """Whose reference says log 1/2 less of each token than the policy."""

    def __init__(self, groups, coef):
        super().__init__(groups, RewardsThemselves())
        self.algorithm_state = {"kl_coef": coef}

    def score(self, sequences, needs):
        scores = super().score(sequences, needs)
        return attrs.evolve(
            scores,
            reference_logprobs=tuple(
                line - s.mask * np.log(2)
                for line, s in zip(scores.logprobs, sequences, strict=True)
            ),
        )


class RewardsThemselves:
    """Credit is the reward itself, where it stands."""

    needs = frozenset()

    def __call__(self, sequences, scores):
        return Advantages(values=tuple(np.where(s.mask, s.rewards, 0.0) for s in sequences))


def test_a_kl_in_the_reward_is_charged_with_the_coefficient_of_the_state():
    algorithm = Plain(kl_coef=0.1, kl_estimator="k1", kl_target=1.0)
    run = KLRun((group(1.0, 0.0),), coef=0.5)
    report = run.step(algorithm)
    cost = 0.5 * np.log(2)
    found = [row.advantages[row.mask].tolist() for row in run.batch.minibatches[0].rows]
    assert sorted(found) == [pytest.approx([-cost, -cost]), pytest.approx([-cost, 1 - cost])]
    assert report.metrics["kl_episode"] == pytest.approx(2 * np.log(2))
    # 2 log 2 is 39 % above the target, which counts as 20 %: 0.5 (1 + 0.1 x 0.2).
    assert algorithm.next_state({"kl_coef": 0.5}, report) == pytest.approx({"kl_coef": 0.51})
    assert algorithm.initial_state() == {"kl_coef": 0.1}
    assert Plain().initial_state() is None


def test_a_correction_weighs_the_advantages_of_the_loss_and_not_the_record():
    """The engine said -1 and -1.25, the trainer -1.5: ratios e^-0.5 and e^-0.25."""
    run = Run((group(1.0, 0.0),), Credit())
    report = run.step(Plain(correction="token"))
    row = run.batch.minibatches[0].rows[0]
    assert row.advantages[row.mask] == pytest.approx(np.exp([-0.5, -0.25]))
    assert report.advantages.values[0][row.mask].tolist() == [1.0, 1.0]
    assert report.metrics["correction_mean"] == pytest.approx(np.exp([-0.5, -0.25]).mean())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"aggregation": "sum"}, "aggregation is 'sum'"),
        ({"aggregation": "constant"}, "needs aggregation_constant"),
        ({"aggregation_constant": 5.0}, "has no effect"),
        ({"num_minibatches": 0}, "'num_minibatches' must be >= 1"),
        ({"num_epochs": 0}, "'num_epochs' must be >= 1"),
        ({"old_logprobs": "engine"}, "'old_logprobs' must be in"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Plain(**fields)


def test_the_loss_is_for_the_algorithm_to_write():
    with pytest.raises(TypeError, match="loss"):
        OnPolicy()


def test_an_algorithm_is_plain_data():
    algorithm = Plain(num_epochs=2)
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        algorithm.num_epochs = 3


@pytest.mark.parametrize(("key", "value"), [("top_p", 0.9), ("top_k", 50), ("temperature", 0)])
def test_training_refuses_to_sample_from_less_than_the_policy(key, value):
    with pytest.raises(ValueError, match=rf"^{key} is {value}: .*`evaluation.{key}"):
        Plain().check(Sampling(**{key: value}))
    Plain().check(Sampling())


@pytest.mark.parametrize(
    "fields",
    [
        {"kl_estimator": "k1", "kl_coef": 0.1, "kl_target": 0.0},
        {"kl_coef": 0.1, "reference_every": -1},
        {"correction": "guessed"},
        {"correction_cap": 1.0},
    ],
)
def test_fields_have_bounds(fields):
    with pytest.raises(ValueError, match=f"'{list(fields)[-1]}' must be"):
        Plain(**fields)


@pytest.mark.parametrize("correction", ["none", "token", "sequence", "mask"])
def test_every_correction_weighs_two_at_most(correction):
    assert Plain(correction=correction).correction_cap == 2.0


def test_the_policy_learns_in_every_step():
    assert Plain().critic_only(0) is False


def test_a_state_that_does_not_adapt_stays():
    report = StepReport(step=0, metrics={"kl_episode": 9.0})
    assert Plain().next_state({"kl_coef": 0.5}, report) == {"kl_coef": 0.5}


def test_what_a_correction_takes_away_is_not_learned():
    # The trainer's -1.5 against -1 and -1.25: ratios 0.61 and 0.78, both below 1 / 1.01.
    run = Run((group(1.0, 0.0),), Credit())
    report = run.step(Plain(correction="mask", correction_cap=1.01))
    assert report.metrics["update_skipped"] == 1.0


def test_a_kl_in_the_reward_alone_gives_no_gradient():
    silent = Advantages(values=(np.zeros(2),))
    assert Plain(kl_coef=0.1, kl_estimator="k1").learned(silent) == [False]
    assert Plain(kl_coef=0.1, kl_estimator="k2").learned(silent) == [True]


def test_the_kl_that_is_reported_has_no_gradient():
    others = ("old_logprobs_NT", "sampled_logprobs_NT", "reference_logprobs_NT", "advantages_NT")
    tokens = TokenTensors(
        logprobs_NT=torch.tensor([[-1.0]], requires_grad=True),
        mask_NT=torch.tensor([[True]]),
        **dict.fromkeys(others, torch.tensor([[-2.0]])),
    )
    # k2: (-2 - -1)^2 / 2.
    _, metrics = Plain(kl_coef=0.1, kl_estimator="k2").objective(tokens)
    assert metrics["kl"].tolist() == [[0.5]]
    assert not metrics["kl"].requires_grad
