"""Stages: what each one says for itself, and what it takes from the run."""

import pytest

from agentgym_core.agents.react import React
from agentgym_core.model import ModelConfig
from agentgym_core.settings import EvaluationConfig, Limits, TrainingConfig

from .conftest import BASE, Imitate, Learn, Maze, Part, with_block

STAGES = """
stages:
  - algorithm: {use: imitate, data: demos.jsonl}
    training: {num_steps: 3}
  - backend: {learning_rate: 0.5}
    limits: {max_tokens: 10}
"""


def test_a_stage_says_only_what_differs(load):
    first, second = load(BASE + STAGES).stages
    assert (first.name, first.algorithm) == ("imitate", Imitate(data="demos.jsonl"))
    assert first.training == TrainingConfig(num_steps=3, tasks_per_step=2)
    assert first.advantage is None
    assert (second.name, second.algorithm) == ("learn", Learn(kl_coef=0.1))
    assert second.training == TrainingConfig(num_steps=10, tasks_per_step=2)
    assert second.backend == Part(learning_rate=0.5)
    assert second.limits == Limits(max_prompt_tokens=100, max_response_tokens=200, max_tokens=10)
    assert second.agent == first.agent == React()


def test_a_later_stage_goes_on_from_the_one_before(load):
    assert [stage.from_base for stage in load(BASE + STAGES).stages] == [True, False]
    config = load(BASE + STAGES, "stages.1.model=base")
    assert [stage.from_base for stage in config.stages] == [True, True]
    assert config.stages[1].model == ModelConfig(path="some/model")


def test_names_of_stages_differ(load):
    def names(stages):
        return [stage.name for stage in load(f"{BASE}\nstages: {stages}").stages]

    assert names("[{}, {}, {}]") == ["learn", "learn-2", "learn-3"]
    assert names("[{}, {name: learn}]") == ["learn-2", "learn"]
    assert names("[{name: warm}, {algorithm: imitate}]") == ["warm", "imitate"]


def test_a_stage_may_replace_its_environment(load):
    config = load(
        f"{BASE}\nstages: [{{environments: [maze, maze]}}, {{environment: {{dark: true}}}}]"
    )
    first, second = config.stages
    assert [block.component for block in first.environments] == [Maze(), Maze()]
    assert [block.component for block in second.environments] == [Maze(size=5, dark=True)]


def test_a_stage_may_switch_a_block_off(load):
    config = load(f"{BASE}\nevaluation: {{max_rounds: 3}}\nstages: [{{evaluation: null}}, {{}}]")
    assert [stage.evaluation for stage in config.stages] == [None, EvaluationConfig(max_rounds=3)]


def test_an_override_reaches_all_stages_and_a_numbered_one_wins(load):
    overrides = ["stages.1.training.num_steps=7", "training.num_steps=2", "seed=5"]
    stages = load(BASE + STAGES, *overrides).stages
    assert [stage.training.num_steps for stage in stages] == [2, 7]
    assert [stage.seed for stage in stages] == [5, 5]


def test_stages_can_be_overridden_whole(load):
    config = load(BASE + STAGES, "stages=[{name: only}]", "training.num_steps=4")
    assert [(s.name, s.training.num_steps) for s in config.stages] == [("only", 4)]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            "[{output: x}]",
            "stages.0.output: unknown key. The keys are: name, model, seed, environment, "
            "environments, agent, algorithm, advantage, rounds, tasks, engine, backend, reward, "
            "limits, training, evaluation",
        ),
        ("[{}, {trainin: {}}]", "stages.1.trainin: unknown key. Did you mean training?"),
        (
            "[{}, {training: {num_stepz: 1}}]",
            "stages.1.training.num_stepz: unknown key. Did you mean num_steps?",
        ),
        ("[{name: a}, {name: a}]", "stages.1.name: another stage is called 'a'"),
        (
            "[{name: a/b}]",
            "stages.0.name: expected a name for a folder, of letters, digits, '.', '_' and '-', "
            "got 'a/b'",
        ),
        (
            "[{model: previous}]",
            "stages.0.model: the first stage has no previous one. Leave the key out",
        ),
        (
            "[{}, {model: bace}]",
            "stages.1.model: expected 'previous' or 'base', got 'bace'. Did you mean base?",
        ),
        ("[{}, {rounds: {use: growing}}]", "stages.1.rounds.rounds: required field missing"),
    ],
)
def test_a_wrong_stage(error, stages, message):
    assert error(f"{BASE}\nstages: {stages}") == message


def test_a_fault_of_the_run_is_not_blamed_on_a_stage(error):
    text = with_block("training: {num_stepz: 3}") + "\nstages: [{}, {}]"
    assert error(text) == "training.num_stepz: unknown key. Did you mean num_steps?"


def test_a_stage_that_is_not_there(error):
    assert error(BASE + STAGES, "stages.2.seed=1") == (
        "stages.2: no such entry; the list has 2, counted from 0"
    )


def test_an_engine_that_a_later_stage_cannot_learn_from_is_refused_before_the_first(error):
    hot = "stages: [{algorithm: imitate}, {engine: {use: toy, learning_rate: 10.0}}]"
    assert error(with_block(hot)) == "stages.1.engine: too hot to learn from"
