"""What is learned of what was explored, with which weight, and whence it is read."""

import asyncio
import json
from types import SimpleNamespace

import attrs
import pytest

from agentgym_core.files import write_json_lines
from agentgym_core.metrics import MetricsLog
from agentgym_core.ranks import ALONE
from agentgym_core.records import group_rows
from agentgym_core.renderer import Renderer
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import Limits
from agentgym_core.structure import structure, unstructure
from agentgym_core.testing.backend import RecordingTrainer
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.types import Ending, Episode, Group, Task, Turn
from agentgym_evol.evol import Evol
from agentgym_evol.explore import Explore

SAID = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "no", "loss": False},
    {"role": "user", "content": "on"},
    {"role": "assistant", "content": "yes"},
]


def episode(number, reward, *, success=None, tokens=(7, 8), ending=Ending.DONE):
    turns = [
        Turn(sequence=0, prompt_ids=(1, 2), token_ids=tokens, logprobs=(-0.5,) * len(tokens),
             finish_reason="stop", policy_version=0, text="x", reward=reward, rounds=1),
        Turn(sequence=1, prompt_ids=(1,), token_ids=(9,), logprobs=(-0.1,), finish_reason="stop",
             policy_version=0, text="y", trained=False),
    ]  # fmt: skip
    return Episode(
        task=Task(id=f"toy_{number}", category="easy"), environment="toy", sample=number, seed=4,
        max_rounds=3, turns=tuple(turns), messages=(), ending=ending, final_ids=(5,),
        success=reward > 0 if success is None else success,
    )  # fmt: skip


def group(*episodes, failures=()):
    task = (*episodes, *failures)[0].task
    return Group(task=task, environment="toy", episodes=episodes, failures=tuple(failures))


@pytest.fixture
def run(tmp_path):
    """Two steps of `explore` lie there, and what a kill may leave beside them."""
    broken = attrs.evolve(episode(9, 0.0), ending=Ending.ENGINE_FAILED, error="gone")
    steps = [
        [group(episode(0, 1.0), episode(1, 0.0)), group(episode(2, 0.5), failures=[broken])],
        [group(episode(3, 0.25, success=False))],
        [group(episode(4, 1.0))],  # a step that metrics.jsonl does not have
    ]
    for number, groups in enumerate(steps, start=1):
        write_json_lines(tmp_path / f"rollouts/explore/step-{number:06d}.jsonl", group_rows(groups))
    (tmp_path / "rollouts/explore/.step-000002.jsonl.half").write_text("{")
    write_json_lines(tmp_path / "demonstrations/clone.jsonl", [{"messages": SAID}])
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (1, 2):
        log.append({"stage": "explore", "phase": "train", "step": step})
    log.append({"stage": "explore", "phase": "evaluation", "step": 2})
    log.append({"stage": "clone", "phase": "train", "step": 1})
    limits = Limits(max_prompt_tokens=40, max_response_tokens=60, max_tokens=20)
    return SimpleNamespace(
        folder=tmp_path, log=log, ranks=ALONE, seed=1, trainer=RecordingTrainer(),
        renderer=Renderer(byte_tokenizer()), config=SimpleNamespace(limits=limits),
    )  # fmt: skip


def prepared(run, **fields):
    return asyncio.run(Evol(explored=("explore",), **fields).prepare(run))


def weights(run, **fields):
    return [lesson.weight for lesson in prepared(run, **fields)]


def test_the_weight_is_the_reward(run):
    assert weights(run) == [1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"weighting": "one"}, [1.0] * 4),
        ({"weighting": "one", "only_success": True}, [1.0, 1.0]),
        ({"weighting": "one", "min_reward": 0.25}, [1.0] * 3),
        ({"only_success": True}, [1.0, 0.5]),
        ({"min_reward": 0.5}, [1.0, 0.5]),
    ],
)
def test_filter_and_weighting(run, fields, expected):
    assert weights(run, **fields) == expected


def test_what_is_learned_are_the_ids_that_were_sampled(run):
    first = prepared(run)[0]
    assert [s.token_ids.tolist() for s in first.sequences] == [[1, 2, 7, 8], [1, 9, 5]]
    assert [s.mask.tolist() for s in first.sequences] == [[False, False, True, True], [False] * 3]
    played = to_sequences([group(episode(0, 1.0))])
    for found, expected in zip(first.sequences, played, strict=True):
        for field in ("token_ids", "mask", "logprobs", "rewards", "turns", "versions"):
            assert getattr(found, field).tolist() == getattr(expected, field).tolist()


def test_original_data_come_from_a_stage_or_from_files(run, tmp_path):
    (tmp_path / "more.jsonl").write_text(json.dumps({"messages": SAID[2:]}))
    fields = {"demonstrations": ("clone",), "data": str(tmp_path / "more.jsonl")}
    found = prepared(run, original_weight=0.5, **fields)
    assert [lesson.weight for lesson in found] == [1.0, 0.5, 0.25, 0.5, 0.5]
    decode = run.renderer.tokenizer.decode
    for lesson in found[3:]:
        (sequence,) = lesson.sequences
        assert decode(sequence.token_ids[sequence.mask].tolist(), skip_special_tokens=True) == "yes"
    assert [s.episode for lesson in found for s in lesson.sequences] == [0, 0, 1, 1, 2, 2, 3, 4]


def test_the_loss_of_a_step_by_hand(run):
    """Two tokens each of weight 1, 1/2 and 1/4: over 6 tokens whose weights add up to 3.5."""
    run.prepared = prepared(run)
    asyncio.run(Evol(explored=("explore",), batch_size=3).train_step(run, 0))
    (minibatch,) = run.trainer.batches[0].minibatches
    shares = sorted(float((row.weights * row.advantages)[row.mask].sum()) for row in minibatch.rows)
    assert shares == pytest.approx([0.5 / 3.5, 1 / 3.5, 2 / 3.5])


def test_nothing_that_passes_is_an_error_unless_there_are_original_data(run, caplog):
    with pytest.raises(ValueError, match="0 of 4 episodes that explore explored pass"):
        prepared(run, min_reward=2.0)
    assert weights(run, min_reward=2.0, demonstrations=("clone",)) == [1.0]
    assert "learns from 0 of 4 episodes that explore explored, and from 1 original" in caplog.text


@pytest.mark.parametrize(
    ("explored", "demonstrations", "says"),
    [
        ("clone", (), "stage 'clone' has played no episodes to learn from"),
        ("later", (), "stage 'later' has played no episodes to learn from"),
        ("explore", ("explore",), "stage 'explore' had no demonstrations played"),
    ],
)
def test_what_is_not_there_is_named(run, explored, demonstrations, says):
    with pytest.raises(ValueError, match=says):
        asyncio.run(Evol(explored=(explored,), demonstrations=demonstrations).prepare(run))


def test_a_file_that_is_gone_is_named(run):
    (run.folder / "rollouts/explore/step-000002.jsonl").unlink()
    with pytest.raises(ValueError, match=r"explore/step-000002\.jsonl is gone, or holds no"):
        prepared(run)


def test_a_file_of_something_else_is_named(run):
    write_json_lines(run.folder / "rollouts/explore/step-000002.jsonl", [{"group": 0}])
    with pytest.raises(ValueError, match=r"step-000002\.jsonl holds no episodes: KeyError"):
        prepared(run)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"explored": ()}, "explored"),
        ({"explored": ("a",), "weighting": "none"}, "'weighting' must be in"),
        ({"explored": ("a",), "original_weight": 0.0}, "'original_weight' must be > 0"),
        ({"explored": ("a",), "original_weight": 2.0}, "no effect without original data"),
    ],
)
def test_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        Evol(**fields)


def test_fields_are_yaml():
    evol = Evol(explored=("a", "b"), demonstrations=("c",), data="d", weighting="one")
    assert structure(Evol, unstructure(evol), "algorithm") == evol
    assert evol.learns_from == ("a", "b", "c")


def test_exploring_plays_and_does_not_learn():
    groups = (group(episode(0, 1.0), episode(1, 0.0)),)

    async def play(step):
        assert step == 6
        return groups

    published = []

    async def publish(version):
        published.append(version)

    run = SimpleNamespace(player=SimpleNamespace(groups=play), publish=publish)
    report = asyncio.run(Explore().train_step(run, 6))
    assert (report.step, report.groups, report.advantages) == (6, groups, None)
    assert published == [7]
    assert report.metrics["success"] == 0.5
    assert "loss" not in report.metrics


def test_exploration_may_be_greedy():
    assert Explore().training_temperature(0.0) == 1.0


def test_files_that_are_missing_are_said_at_once(tmp_path):
    Evol(explored=("explore",)).check_files()
    with pytest.raises(ValueError, match="data: there is no file"):
        Evol(explored=("explore",), data=str(tmp_path / "nowhere.jsonl")).check_files()


def test_a_stage_is_named_once():
    with pytest.raises(ValueError, match="explored names stage 'a' twice"):
        Evol(explored=("a", "a"))
    with pytest.raises(ValueError, match="demonstrations names stage 'b' twice"):
        Evol(explored=("a",), demonstrations=("b", "b"))
    assert Evol(explored=("a",), demonstrations=("a", "b")).learns_from == ("a", "a", "b")
