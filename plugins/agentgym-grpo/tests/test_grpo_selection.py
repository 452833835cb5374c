"""Which episodes are learned: over-long ones, and groups that are played in place of others."""

import asyncio
from types import SimpleNamespace

import attrs
import pytest

from agentgym_core.records import group_rows
from agentgym_core.testing.backend import RecordingTrainer
from agentgym_core.types import Ending, Episode, Group, Task, Turn
from agentgym_grpo.group_relative import GroupRelative
from agentgym_grpo.grpo import GRPO
from agentgym_grpo.selection import has_signal, without_overlong


def episode(reward, *, ending=Ending.DONE, trained=True, task="room_1"):
    turns = tuple(
        Turn(
            sequence=0,
            prompt_ids=(1,),
            token_ids=(2, 3),
            logprobs=(-0.5, -0.25),
            finish_reason="stop",
            policy_version=0,
            text="",
            reward=part,
            trained=trained,
            rounds=1,
        )
        for part in (0.0, reward)
    )
    return Episode(
        task=Task(id=task),
        environment="room",
        sample=0,
        seed=0,
        max_rounds=3,
        turns=turns,
        messages=(),
        ending=ending,
        success=reward > 0,
    )


def group(*rewards, task="room_1", **options):
    episodes = tuple(episode(reward, task=task, **options) for reward in rewards)
    return Group(task=Task(id=task), environment="room", episodes=episodes)


class Run:
    """Plays what it is given, call by call, and remembers what it was asked for."""

    seed = 3

    def __init__(self, *played, tasks_per_step=2):
        self.played = list(played)
        self.asked = []
        self.trainer = RecordingTrainer()
        self.advantage = GroupRelative(scale="none")
        self.training = SimpleNamespace(tasks_per_step=tasks_per_step)
        self.player = self
        self.published = []

    async def groups(self, step, *, refill=0, num_tasks=None):
        self.asked.append((step, refill, num_tasks))
        return self.played.pop(0)

    def beating(self, loss):
        return loss

    async def publish(self, version):
        self.published.append(version)

    def step(self, algorithm):
        return asyncio.run(algorithm.train_step(self, 5))

    @property
    def rows(self):
        return [r for b in self.trainer.batches for m in b.minibatches for r in m.rows]


def test_a_signal_is_two_rewards_and_something_to_learn():
    assert has_signal(group(1.0, 0.0))
    assert not has_signal(group(0.1 + 0.2, 0.3))
    assert not has_signal(group(1.0))
    assert not has_signal(group())
    assert not has_signal(group(1.0, 0.0, trained=False))


def test_groups_without_signal_are_played_again_with_other_tasks():
    run = Run(
        (group(1.0, 1.0, task="easy"), group(1.0, 0.0, task="first")),
        (group(0.0, 0.0, task="hard"),),
        (group(0.0, 3.0, task="last"),),
    )
    report = run.step(GRPO(max_refills=5))
    # Each refill asks for as many as are missing, and the step is full after the second.
    assert run.asked == [(5, 0, None), (5, 1, 1), (5, 2, 1)]
    assert [g.task.id for g in report.groups] == ["easy", "first", "hard", "last"]
    # Metrics are over all that was played: 8 episodes, of which 4 succeeded.
    assert report.metrics["episodes"] == 8
    assert report.metrics["success"] == 0.5
    assert report.metrics["refills"] == 2
    assert report.metrics["groups_without_signal"] == 0.5
    # Four episodes of four trained tokens are learned, and counted in the mean.
    assert len(run.rows) == 4
    assert {tuple(row.weights[row.mask]) for row in run.rows} == {(1 / 16,) * 4}
    assert sorted(row.advantages[1] for row in run.rows) == [-1.5, -0.5, 0.5, 1.5]
    assert run.published == [6]


def test_the_record_has_credit_with_the_episodes_that_earned_it():
    run = Run(
        (group(1.0, 1.0, task="easy"), group(1.0, 0.0, task="first")),
        (group(0.0, 3.0, task="last"),),
    )
    report = run.step(GRPO(max_refills=1))
    assert [(s.episode, s.group) for s in report.sequences] == [(2, 1), (3, 1), (4, 2), (5, 2)]
    rows = group_rows(report.groups, report.sequences, report.advantages)
    credit = [(row["item_id"], row["group"], row["turns"][0]["advantages"]) for row in rows]
    assert credit == [
        ("easy", 0, []),
        ("easy", 0, []),
        ("first", 1, [0.5, 0.5]),
        ("first", 1, [-0.5, -0.5]),
        ("last", 2, [-1.5, -1.5]),
        ("last", 2, [1.5, 1.5]),
    ]


def test_with_too_few_after_the_limit_it_learns_from_what_there_is():
    silent = (group(0.0, 0.0),)
    run = Run((group(1.0, 0.0), *silent), silent, silent)
    report = run.step(GRPO(max_refills=2))
    assert len(run.asked) == 3
    assert len(run.rows) == 2
    assert report.metrics["refills"] == 2
    assert report.metrics["groups_without_signal"] == 0.75


def test_with_no_signal_at_all_the_weights_are_left_alone():
    silent = (group(0.0, 0.0),)
    run = Run((*silent, *silent), (*silent, *silent))
    report = run.step(GRPO(max_refills=1, kl_coef=0.1))
    assert run.asked[1] == (5, 1, 2)
    assert run.rows == []
    assert report.metrics["update_skipped"] == 1
    assert report.metrics["groups_without_signal"] == 1
    assert report.advantages is None
    assert len(group_rows(report.groups, report.sequences, report.advantages)) == 8


def test_one_group_alone_is_all_there_is():
    run = Run((group(1.0, 1.0),), (), tasks_per_step=1)
    assert run.step(GRPO(max_refills=1)).metrics["groups_without_signal"] == 1


def test_a_group_that_lost_its_attempts_is_refilled():
    run = Run((group(), group(1.0, 0.0)), (group(2.0, 0.0),))
    assert run.step(GRPO(max_refills=1)).metrics["refills"] == 1
    assert len(run.rows) == 4


def test_a_full_step_is_not_refilled():
    run = Run((group(1.0, 0.0), group(1.0, 0.0)))
    report = run.step(GRPO(max_refills=3))
    assert run.asked == [(5, 0, None)]
    assert report.metrics["refills"] == 0


def test_without_refills_all_groups_are_learned_and_nothing_is_said_of_refills():
    run = Run((group(1.0, 0.0), group(1.0, 1.0)))
    report = run.step(GRPO())
    assert run.asked == [(5, 0, None)]
    assert "refills" not in report.metrics
    assert report.metrics["groups_without_signal"] == 0.5
    # The silent group counts in the mean, as before.
    assert {tuple(row.weights[row.mask]) for row in run.rows} == {(1 / 16,) * 4}


def mixed():
    """Attempts that earn 4, 1 and 1, of which the second ran out of tokens."""
    cut = episode(1.0, ending=Ending.OUT_OF_TOKENS)
    return Group(
        task=Task(id="room_1"),
        environment="room",
        episodes=(episode(4.0), cut, episode(1.0)),
    )


def test_overlong_episodes_are_compared_and_not_learned():
    run = Run((mixed(),), tasks_per_step=1)
    report = run.step(GRPO(overlong="mask"))
    # The mean of 4, 1 and 1 is 2: the masked one is in it. Two episodes are learned.
    assert sorted(row.advantages[1] for row in run.rows) == [-1, 2]
    assert {tuple(row.weights[row.mask]) for row in run.rows} == {(1 / 8,) * 4}
    # The record says that its turns are not trained, and keeps their rewards.
    rows = group_rows(report.groups, report.sequences, report.advantages)
    assert [[t["trained"] for t in row["turns"]] for row in rows] == [
        [True, True],
        [False, False],
        [True, True],
    ]
    assert [row["reward"] for row in rows] == [4, 1, 1]
    assert rows[1]["turns"][0]["advantages"] == [0, 0]
    assert report.metrics["reward"] == 2


def test_kept_overlong_episodes_are_learned():
    run = Run((mixed(),), tasks_per_step=1)
    run.step(GRPO())
    assert sorted(row.advantages[1] for row in run.rows) == [-1, -1, 2]


@pytest.mark.parametrize("ending", [end for end in Ending if not end.is_failure])
def test_only_running_out_of_tokens_is_overlong(ending):
    played = attrs.evolve(group(1.0), episodes=(episode(1.0, ending=ending),))
    ((masked,),) = (g.episodes for g in without_overlong([played]))
    assert {turn.trained for turn in masked.turns} == {ending is not Ending.OUT_OF_TOKENS}


def test_a_group_of_which_all_is_overlong_is_refilled():
    run = Run((group(1.0, 0.0, ending=Ending.OUT_OF_TOKENS),), (group(2.0, 0.0),), tasks_per_step=1)
    report = run.step(GRPO(overlong="mask", max_refills=1))
    assert report.metrics["refills"] == 1
    assert len(run.rows) == 2
