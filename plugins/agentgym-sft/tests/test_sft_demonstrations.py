"""What the experts of the environments are asked to show, and what is learned of it."""

import asyncio
from types import SimpleNamespace

import pytest

from agentgym_core.agents.act import Act
from agentgym_core.evaluate import evaluation_orders
from agentgym_core.expert import Demonstrator, ExpertPolicy
from agentgym_core.player import Player
from agentgym_core.protocols import RoundScheduler, TaskPool
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Table
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.settings import EvaluationConfig, Limits, TrainingConfig
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Sampling
from agentgym_sft.sft import SFT

ROOM = Limits(max_prompt_tokens=500, max_response_tokens=2000, max_tokens=20)
EVALUATION = EvaluationConfig(max_rounds=4, split="test")


class Longer(RoundScheduler):
    """Another horizon in the second step, at which nothing is demonstrated."""

    def max_rounds(self, step, state):
        return 4 if step == 0 else 99


def make_run(evaluation=None):
    world = Countdown()
    pool = TaskPool(environment="countdown", weight=1.0, tasks=tuple(world.tasks("train")))
    wrong = ExpertPolicy(demonstrator=Demonstrator(mistakes=1.0))  # the run's own policy
    player = Player(
        table=Table(environments={"countdown": world}, agent=Act(), policy=wrong),
        pools=(pool,),
        tasks=UniformTaskSampler(),
        rounds=Longer(),
        training=TrainingConfig(num_steps=1),
        sampling=Sampling(),
        seed=1,
    )
    found = SimpleNamespace(kept=[], evaluated=[])
    run = SimpleNamespace(
        seed=1,
        player=player,
        renderer=Renderer(byte_tokenizer()),
        config=SimpleNamespace(name="imitate", limits=ROOM, evaluation=evaluation),
        keep=lambda path, rows: found.kept.append((path, rows)),
        was_evaluated=lambda step, sampling: (step, sampling) in found.evaluated,
        evaluation_orders=lambda temperature: evaluation_orders(
            {"countdown": world}, evaluation, temperature
        ),
        write_evaluation=lambda step, of, seconds: found.evaluated.append((step, of, seconds)),
    )
    return run, found


def demonstrate(num=8, evaluation=None, **fields):
    run, found = make_run(evaluation)
    lessons = asyncio.run(SFT(num_demonstrations=num, **fields).prepare(run))
    return run, found, lessons


def words(run, lesson):
    (sequence,) = lesson.sequences
    decode = run.renderer.tokenizer.decode
    return decode(sequence.token_ids[sequence.mask].tolist(), skip_special_tokens=True)


def counted(number):
    """Replies of the expert."""
    return ["Action: down"] * number + ["Action: lift off"]


def test_the_expert_plays_every_task_equally_often_within_the_first_horizon():
    run, found, lessons = demonstrate()
    ((path, rows),) = found.kept
    assert path == "demonstrations/imitate.jsonl"
    assert sorted(row["item_id"] for row in rows) == sorted(
        f"countdown_{n}" for n in (1, 2, 3, 4) * 2
    )
    for row, lesson in zip(rows, lessons, strict=True):
        number = int(row["item_id"][-1])
        actions = counted(number)[:4]  # the fourth task takes five
        said = [m["content"] for m in row["messages"] if m["role"] == "assistant"]
        assert said == actions
        assert row["success"] is (number < 4)
        assert row["reward"] == float(number < 4)
        assert words(run, lesson) == "".join(actions)
        assert lesson.weight == 1.0
        assert [sequence.task for sequence in lesson.sequences] == [row["item_id"]]


def test_what_did_not_succeed_or_earned_too_little_is_left_out():
    for fields in ({"only_success": True}, {"min_reward": 0.5}):
        run, _, lessons = demonstrate(**fields)
        assert sorted({words(run, lesson) for lesson in lessons}) == [
            "".join(counted(number)) for number in (3, 2, 1)
        ]


def test_it_errs_as_often_as_it_is_told_each_time_otherwise_and_every_run_alike():
    careless = Demonstrator(mistakes=0.5, learn_mistakes=True)
    run, found, lessons = demonstrate(num=40, demonstrator=careless)
    again = demonstrate(num=40, demonstrator=careless)
    assert found.kept == again[1].kept
    first = [words(run, lesson) for lesson in lessons]
    # Half of the first actions are another than "down", which here can only be "lift off".
    assert 10 <= sum(text.startswith("Action: lift off") for text in first) <= 30
    with pytest.raises(ValueError, match="none of 40 conversations passes"):
        demonstrate(num=40, only_success=True, demonstrator=Demonstrator(mistakes=1.0))


def test_the_demonstrators_own_success_is_evaluated_once():
    run, found, _ = demonstrate(evaluation=EVALUATION)
    ((step, evaluation, seconds),) = found.evaluated
    assert (step, evaluation.sampling) == (0, "demonstrator")
    assert evaluation.overall.success == 3 / 4  # the fourth task takes five rounds of four
    assert 0 <= seconds < 60
    found.evaluated[:] = [(0, "demonstrator")]
    asyncio.run(SFT(num_demonstrations=2).prepare(run))
    assert found.evaluated == [(0, "demonstrator")]


def test_without_an_evaluation_nothing_is_evaluated():
    _, found, _ = demonstrate(num=2)
    assert found.evaluated == []
