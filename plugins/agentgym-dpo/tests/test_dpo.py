"""DPO's numbers by hand, and its gradient against that of the equation itself."""

import asyncio
import json
from math import log
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch

from agentgym_core.renderer import Renderer
from agentgym_core.settings import Limits
from agentgym_core.structure import structure, unstructure
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.types import Ending, Episode, Group, Scores, Task, TokenTensors, Turn
from agentgym_dpo.dpo import DPO
from agentgym_dpo.pairs import Preferences, pairs_of_groups
from agentgym_dpo.preference import Margins, credit, margins

VOCABULARY = 5


def turn(tokens, *, sequence=0, trained=True, reward=0.0, read=(0,)):
    return Turn(
        sequence=sequence, prompt_ids=read, token_ids=tuple(tokens), logprobs=(-1.0,) * len(tokens),
        finish_reason="stop", policy_version=0, text="", reward=reward, rounds=1, trained=trained,
    )  # fmt: skip


def group(*attempts, rewards):
    """Attempts as lists of turns; the reward of each lies on its last turn."""
    task = Task(id="toy_0")
    episodes = [
        Episode(
            task=task, environment="toy", sample=i, seed=0, max_rounds=9, messages=(),
            turns=(*turns[:-1], attrs.evolve(turns[-1], reward=rewards[i])),
            ending=Ending.DONE, success=rewards[i] > 0,
        )
        for i, turns in enumerate(attempts)
    ]  # fmt: skip
    return Group(task=task, environment="toy", episodes=tuple(episodes))


def one_turn(num, rewards):
    return group(*[[turn([1, 2])]] * num, rewards=rewards)


class Toy:
    """A run whose policy is a table: the chance of a token depends on the one before it, only."""

    seed = 3

    def __init__(self, groups=(), prepared=None, seed=0, same=False):
        draw = torch.Generator().manual_seed(seed)
        shape = (VOCABULARY, VOCABULARY)
        self.table = torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True)
        moved = torch.randn(shape, generator=draw, dtype=torch.float64)
        self.reference = self.table.detach() + (0.0 if same else 1.0) * moved
        self._groups, self.prepared = groups, prepared
        self.trainer = self.player = self
        self.published, self.batches, self.gradient = [], [], torch.zeros(shape)
        self.config = SimpleNamespace(training=SimpleNamespace(group_size=2))

    async def groups(self, step):
        return self._groups

    def logprobs(self, table, ids):
        """Of each token after the first; the first has none."""
        lines = table.log_softmax(-1)[torch.as_tensor(ids[:-1]), torch.as_tensor(ids[1:])]
        return torch.cat([torch.zeros(1, dtype=torch.float64), lines])

    def score(self, sequences, needs):
        assert needs == {"logprobs", "reference_logprobs"}

        def scored(table):
            lines = [self.logprobs(table, s.token_ids).detach().numpy() for s in sequences]
            return tuple(line * s.mask for line, s in zip(lines, sequences, strict=True))

        return Scores(logprobs=scored(self.table), reference_logprobs=scored(self.reference))

    def update(self, batch, loss):
        """The gradient, row by row: a micro-batch of each."""
        self.batches.append(batch)
        (minibatch,) = batch.minibatches
        total = sum(self.share(row, loss) for row in minibatch.rows)
        (self.gradient,) = torch.autograd.grad(total, self.table)
        return {"loss": float("nan"), "grad_norm": 1.0}

    def share(self, row, loss):
        def line(values):
            return torch.as_tensor(values)[None]

        tokens = TokenTensors(
            logprobs_NT=self.logprobs(self.table, row.token_ids)[None],
            mask_NT=line(row.mask), advantages_NT=line(row.advantages),
            old_logprobs_NT=line(row.old_logprobs), sampled_logprobs_NT=line(row.sampled_logprobs),
            reference_logprobs_NT=line(row.reference_logprobs),
        )  # fmt: skip
        return (line(row.weights) * loss(tokens)[0]).sum()

    def beating(self, loss):
        return loss

    async def publish(self, version):
        self.published.append(version)

    def direct(self, preferences, beta, smoothing):
        """The equation as it stands, on all pairs at once, by autograd."""
        ratios = {}
        for s in preferences.sequences:
            own, reference = (self.logprobs(t, s.token_ids) for t in (self.table, self.reference))
            moved = ((own - reference) * torch.as_tensor(s.mask)).sum()
            ratios[s.episode] = ratios.get(s.episode, 0.0) + moved
        m = torch.stack([beta * (ratios[a] - ratios[b]) for a, b in preferences.pairs])
        sigmoid = torch.nn.functional.logsigmoid
        loss = -((1 - smoothing) * sigmoid(m) + smoothing * sigmoid(-m)).mean()
        return loss.item(), torch.autograd.grad(loss, self.table)[0]


LONG = [turn([1, 2, 3]), turn([4, 1], read=(2, 2)), turn([3, 3, 2], sequence=1)]
GROUPS = (
    group([turn([1, 2])], [turn([2, 4, 1])], LONG, rewards=[0.0, 0.5, 1.0]),
    group([turn([1]), turn([3], read=(4,), trained=False)], [turn([2])], rewards=[1.0, 0.0]),
    one_turn(3, rewards=[1.0, 1.0, 1.0]),
)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("pairing", ["best-worst", "all"])
def test_the_gradient_is_that_of_the_equation(pairing, smoothing):
    toy = Toy(GROUPS)
    dpo = DPO(beta=0.7, label_smoothing=smoothing, pairing=pairing)
    report = asyncio.run(dpo.train_step(toy, 4))
    found = pairs_of_groups(GROUPS, pairing, 0.0)
    assert len(found.pairs) == {"best-worst": 2, "all": 4}[pairing]
    loss, gradient = toy.direct(found, 0.7, smoothing)
    assert report.metrics["loss"] == pytest.approx(loss, abs=1e-10)
    assert (toy.gradient - gradient).abs().max() < 1e-10
    assert toy.gradient.abs().max() > 1e-3
    assert toy.published == [5]


def test_the_loss_is_ln_2_where_the_policy_is_the_reference():
    for smoothing in (0.0, 0.3):
        toy = Toy(GROUPS, same=True)
        report = asyncio.run(DPO(label_smoothing=smoothing).train_step(toy, 0))
        assert report.metrics["loss"] == pytest.approx(log(2), abs=1e-12)
        assert report.metrics["preference_margin"] == report.metrics["preference_accuracy"] == 0


def test_what_a_step_that_plays_reports():
    """Everything that was played, the group without a pair too."""
    report = asyncio.run(DPO().train_step(Toy(GROUPS), 0))
    assert report.groups == GROUPS
    assert [sequence.episode for sequence in report.sequences] == [0, 1, 2, 2, 3, 4, 5, 6, 7]
    assert report.metrics["update_skipped"] == 0
    assert report.metrics["sampling_gap"] > 0
    prepared = pairs_of_groups(GROUPS, "best-worst", 0.0)
    picked = asyncio.run(DPO(explored=("e",)).train_step(Toy(prepared=prepared), 0))
    assert "sampling_gap" not in picked.metrics  # the engine's policy was another


def test_masked_tokens_are_exactly_zero_whatever_they_hold():
    tokens = TokenTensors(
        logprobs_NT=torch.tensor([[-torch.inf, -2.0]]), mask_NT=torch.tensor([[False, True]]),
        advantages_NT=torch.tensor([[3.0, 0.5]]), old_logprobs_NT=torch.zeros(1, 2),
        sampled_logprobs_NT=torch.zeros(1, 2),
    )  # fmt: skip
    assert DPO().loss(tokens)[0].tolist() == [[0, 1]]


def test_small_margins_are_preferences_too():
    found = Margins(chosen_P=np.array([0.5, 0.25]), rejected_P=np.zeros(2)).metrics(0.0)
    assert (found["preference_accuracy"], found["preference_margin"]) == (1, 0.375)


def test_two_pairs_by_hand():
    """Margins ln 3 and -ln 3: sigmoid 3/4 and 1/4, losses ln 4/3 and ln 4."""
    found = Margins(chosen_P=np.array([log(3), 0.0]), rejected_P=np.array([0.0, log(3)]))
    assert found.losses(0.0).tolist() == pytest.approx([log(4 / 3), log(4)])
    assert found.slopes(0.0).tolist() == pytest.approx([1 / 4, 3 / 4])
    assert found.metrics(0.0) == pytest.approx(
        {
            "loss": (log(4 / 3) + log(4)) / 2, "preference_accuracy": 0.5, "preference_margin": 0.0,
            "chosen_reward": log(3) / 2, "rejected_reward": log(3) / 2,
        }
    )  # fmt: skip
    # smoothed by 0.1: 0.9 x 1/4 - 0.1 x 3/4 and 0.9 x 3/4 - 0.1 x 1/4
    assert found.slopes(0.1).tolist() == pytest.approx([0.15, 0.65])
    assert found.losses(0.1)[0] == pytest.approx(0.9 * log(4 / 3) + 0.1 * log(4))
    # trajectory 0 is chosen in both, 1 and 2 are rejected; beta is 0.5
    credits = credit([(0, 1), (0, 2)], found.slopes(0.0), 0.5)
    assert credits == pytest.approx({0: 0.5, 1: -0.125, 2: -0.375})


def test_log_ratios_add_up_over_turns_and_contexts_and_leave_out_what_the_world_says():
    found = pairs_of_groups([group(LONG, [turn([2])], rewards=[1.0, 0.0])], "best-worst", 0.0)
    assert [s.episode for s in found.sequences] == [0, 0, 1]
    own = tuple(np.full(len(s), -1.0) for s in found.sequences)
    reference = tuple(np.full(len(s), -1.5) for s in found.sequences)
    scores = Scores(logprobs=own, reference_logprobs=reference)
    moved = margins(found, scores, beta=0.1)
    assert moved.chosen_P.tolist() == pytest.approx([0.1 * 8 * 0.5])  # 8 tokens were said
    assert moved.rejected_P.tolist() == pytest.approx([0.1 * 1 * 0.5])


def test_huge_margins_stay_finite():
    found = Margins(chosen_P=np.array([900.0, 0.0]), rejected_P=np.array([0.0, 900.0]))
    assert found.losses(0.0).tolist() == [0.0, 900.0]
    assert found.slopes(0.0).tolist() == [0.0, 1.0]


SILENT = [turn([1, 2], trained=False)]


def test_a_trajectory_without_a_learned_token_has_log_ratio_0():
    toy = Toy((group([turn([1, 2])], SILENT, rewards=[1.0, 0.0]),))
    report = asyncio.run(DPO(beta=0.5).train_step(toy, 0))
    assert report.metrics["rejected_reward"] == 0.0
    assert np.isfinite(report.metrics["loss"])
    assert [len(row) for row in toy.batches[0].minibatches[0].rows] == [3]
    assert toy.gradient.isfinite().all()


def test_neither_has_a_trajectory_in_which_nothing_was_said():
    (said,) = pairs_of_groups([one_turn(1, rewards=[1.0])], "all", 0.0).sequences
    scores = Scores(logprobs=(np.zeros(3),), reference_logprobs=(np.array([0.0, -1.0, -1.0]),))
    found = margins(Preferences(sequences=(said,), pairs=((0, 1), (1, 0))), scores, beta=0.5)
    assert found.chosen_P.tolist() == [1, 0]
    assert found.rejected_P.tolist() == [0, 1]


def test_a_pair_of_which_neither_is_learned_changes_nothing():
    silent = group(SILENT, SILENT, rewards=[1.0, 0.0])
    alone, beside = Toy(GROUPS[:1]), Toy((silent, *GROUPS[:1]))
    first, second = (asyncio.run(DPO().train_step(toy, 0)).metrics for toy in (alone, beside))
    assert first["loss"] == second["loss"]
    assert torch.equal(alone.gradient, beside.gradient)


def test_ties_give_no_pair_and_leave_the_weights_alone():
    toy = Toy((one_turn(3, rewards=[0.5, 0.5, 0.5 + 1e-12]),))
    report = asyncio.run(DPO(pairing="all").train_step(toy, 2))
    assert report.metrics["pairs"] == 0
    assert report.metrics["update_skipped"] == 1
    assert toy.batches == []
    assert toy.published == [3]
    assert not any(values.any() for values in report.advantages.values)


def test_which_attempts_are_paired():
    groups = [one_turn(4, rewards=[0.0, 1.0, 0.5, 1.0]), one_turn(2, rewards=[0.2, 0.0])]
    assert pairs_of_groups(groups, "best-worst", 0.0).pairs == ((1, 0), (4, 5))
    assert pairs_of_groups(groups, "best-worst", 0.5).pairs == ((1, 0),)
    every = {(1, 0), (3, 0), (2, 0), (1, 2), (3, 2), (4, 5)}
    assert set(pairs_of_groups(groups, "all", 0.0).pairs) == every
    assert set(pairs_of_groups(groups, "all", 0.5).pairs) == {(1, 0), (3, 0)}
    empty = Group(task=groups[0].task, environment="toy", episodes=())
    assert pairs_of_groups([empty], "best-worst", 0.0).pairs == ()


def test_what_is_recorded_is_the_credit_of_each_token():
    toy = Toy(GROUPS[1:], same=True)
    report = asyncio.run(DPO(beta=0.4).train_step(toy, 0))
    found = [values.tolist() for values in report.advantages.values]
    assert found[:2] == [[0, 0.2, 0, 0], [0, -0.2]]  # beta / 2; the second turn is not trained
    assert not np.concatenate(found[2:]).any()


def test_steps_on_prepared_pairs_are_functions_of_their_number():
    groups = [one_turn(2, rewards=[1.0, 0.0]) for _ in range(6)]
    prepared = pairs_of_groups(groups, "best-worst", 0.0)
    dpo = DPO(explored=("explore",), batch_size=2)
    picked = [dpo._pick(Toy(prepared=prepared), step).pairs for step in range(3)]
    assert sorted(pair for pairs in picked for pair in pairs) == sorted(prepared.pairs)
    assert dpo._pick(Toy(prepared=prepared), 1).pairs == picked[1]
    toy = Toy(prepared=prepared)
    report = asyncio.run(dpo.train_step(toy, 1))
    assert (report.metrics["pairs"], toy.published, report.groups) == (2, [], ())


def test_a_pair_that_comes_twice_counts_twice():
    groups = [group([turn([1, 2])], [turn([3])], rewards=[1.0, 0.0])]
    prepared = pairs_of_groups(groups, "best-worst", 0.0)
    once, twice = Toy(prepared=prepared), Toy(prepared=prepared)
    asyncio.run(DPO(explored=("e",), batch_size=1).train_step(once, 0))
    asyncio.run(DPO(explored=("e",), batch_size=2).train_step(twice, 0))
    assert (once.gradient - twice.gradient).abs().max() < 1e-15


ASK = {"role": "user", "content": "go"}


def say(text, **keys):
    return {"role": "assistant", "content": text, **keys}


def prepare(tmp_path, *rows):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    limits = Limits(max_prompt_tokens=40, max_response_tokens=60, max_tokens=20)
    run = SimpleNamespace(
        renderer=Renderer(byte_tokenizer()), config=SimpleNamespace(limits=limits)
    )
    return run.renderer, asyncio.run(DPO(data=str(path)).prepare(run))


def test_a_side_that_cannot_be_rendered_is_named_with_its_place(tmp_path):
    torn = {"role": "user", "content": "\ud800"}
    row = {"chosen": [torn, say("a")], "rejected": [torn, say("b")]}
    with pytest.raises(ValueError, match=r"pairs\.jsonl:1: \w*Error: "):
        prepare(tmp_path, row)


def learned(renderer, preferences):
    return [
        renderer.tokenizer.decode(s.token_ids[s.mask].tolist(), skip_special_tokens=True)
        for s in preferences.sequences
    ]


def test_files_hold_pairs_with_and_without_a_prompt(tmp_path):
    whole = {"chosen": [ASK, say("up"), ASK, say("in")], "rejected": [ASK, say("off")]}
    asked = {"prompt": [ASK, say("hm"), ASK], "chosen": [say("a")], "rejected": [say("b")]}
    renderer, found = prepare(tmp_path, whole, asked)
    assert found.pairs == ((0, 1), (2, 3))
    assert [s.episode for s in found.sequences] == [0, 1, 2, 3]
    assert learned(renderer, found) == ["upin", "off", "a", "b"]


def test_a_reply_with_loss_false_is_not_learned(tmp_path):
    row = {"chosen": [ASK, say("a"), ASK, say("b", loss=False)], "rejected": [ASK, say("c")]}
    renderer, found = prepare(tmp_path, row)
    assert learned(renderer, found) == ["a", "c"]


def test_a_pair_that_does_not_fit_is_said_and_left_out(tmp_path, caplog):
    long = {"role": "user", "content": "go" * 40}
    fits = {"chosen": [ASK, say("a")], "rejected": [ASK, say("b")]}
    long_task = {"chosen": [long, say("a")], "rejected": [long, say("b")]}
    one_long = {"chosen": [ASK, say("a"), long, say("c")], "rejected": [ASK, say("b")]}
    other_long = {"chosen": [ASK, say("a")], "rejected": [ASK, say("b" * 90)]}
    prepare(tmp_path, fits)
    assert not caplog.records
    _, found = prepare(tmp_path, long_task, fits, one_long, other_long)
    assert found.pairs == ((2, 3),)
    assert "3 of 4 pairs are left out: a side of theirs does not fit limits" in caplog.text
    with pytest.raises(ValueError, match="no pairs to learn from: none of the rows fits `limits`"):
        prepare(tmp_path, long_task)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"chosen": [ASK, say("a")], "rejected": [ASK, say("a")]}, "pairs.jsonl:1: .*are the same"),
        ({"chosen": [ASK, say("a")]}, "pairs.jsonl:1: expected .*KeyError: 'rejected'"),
        ({"chosen": "a", "rejected": "b"}, "TypeError: 'a' is no list"),
        ([3], r"pairs.jsonl:1: expected .*got 3"),
        (
            {"chosen": [ASK, say("a", loss=False)], "rejected": [ASK, say("b")]},
            "pairs.jsonl:1: nothing is learned of `chosen`",
        ),
        ({"prompt": [ASK], "chosen": [say("a")], "rejected": []}, "is learned of `rejected`"),
        (
            {"chosen": [ASK, say("a")], "rejected": [ASK, ASK, say("b")]},
            "pairs.jsonl:1: .* begin differently: a pair is of one task",
        ),
    ],
)
def test_a_bad_row_is_named_with_its_place(tmp_path, row, says):
    with pytest.raises(ValueError, match=says):
        prepare(tmp_path, row)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"beta": 0.0}, "'beta' must be > 0"),
        ({"label_smoothing": 0.5}, "'label_smoothing' must be < 0.5"),
        ({"margin": -1.0}, "'margin' must be >= 0"),
        ({"pairing": "some"}, "'pairing' must be in"),
        ({"data": "a", "explored": ("b",)}, "give `data` or `explored`, not both"),
        ({"explored": ("a", "b", "a")}, "explored names stage 'a' twice"),
        ({"data": "a", "margin": 0.1}, "pairing and margin have no effect on `data`"),
        ({"batch_size": 4}, "batch_size has no effect on what a step plays"),
    ],
)
def test_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        DPO(**fields)


def test_play_needs_attempts_that_differ():
    cold = SimpleNamespace(temperature=0.0)
    with pytest.raises(ValueError, match="temperature is 0: pairs need attempts that differ"):
        DPO().check(cold)
    DPO(data="a").check(cold)
    DPO().check(SimpleNamespace(temperature=0.5))
    toy = Toy()
    assert asyncio.run(DPO().prepare(toy)) is None  # of two attempts
    toy.config.training.group_size = 1
    with pytest.raises(ValueError, match="group_size is 1: a pair is of two attempts"):
        asyncio.run(DPO().prepare(toy))


def test_the_temperature_of_what_is_learned():
    assert DPO().training_temperature(0.7) == DPO(explored=("e",)).training_temperature(0.7) == 0.7
    assert DPO(data="a").training_temperature(0.7) == 1.0


def test_fields_are_yaml():
    for dpo in (DPO(), DPO(explored=("a", "b"), batch_size=4), DPO(data=("a", "b"))):
        assert structure(DPO, unstructure(dpo), "algorithm") == dpo


def test_pairs_may_be_picked_alone():
    found = Preferences(sequences=pairs_of_groups(GROUPS, "all", 0.0).sequences, pairs=((3, 4),))
    assert {s.episode for s in found.only(found.pairs).sequences} == {3, 4}


def test_it_learns_from_the_stages_that_it_names():
    assert DPO(explored=("a", "b")).learns_from == ("a", "b")
    assert DPO().learns_from == ()


def test_files_that_are_missing_are_said_at_once(tmp_path):
    DPO().check_files()
    path = tmp_path / "pairs.jsonl"
    with pytest.raises(ValueError, match=r"data: there is no file .*pairs\.jsonl"):
        DPO(data=str(path)).check_files()
    path.write_text("not read yet")
    DPO(data=str(path)).check_files()
