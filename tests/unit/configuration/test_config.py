"""What a YAML file composes, the words for what is wrong with it, and how it is written down."""

from pathlib import Path

import attrs
import pytest
import yaml

from agentgym_core.agents.react import React
from agentgym_core.config import EnvironmentBlock, compose, resolved
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.rewards import EnvironmentReward, FormatPenalty, RoundCost, SuccessReward
from agentgym_core.rounds import FixedRoundsScheduler
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.settings import EvaluationConfig, Limits, TrainingConfig

from .conftest import BASE, Credit, Learn, Maze, Part, with_block
from .test_stages import STAGES


def test_a_run_without_stages_has_one(load):
    config = load()
    assert (config.name, config.output) == ("quick", Path("runs"))
    (stage,) = config.stages
    assert stage.name == "learn"
    assert stage.from_base
    assert stage.seed == 0
    assert stage.model == ModelConfig(path="some/model")
    assert stage.environments == (
        EnvironmentBlock(
            name="maze", use="maze", component=Maze(size=5), weight=1.0, split="train"
        ),
    )
    assert stage.agent == React()
    assert stage.algorithm == Learn(kl_coef=0.1)
    assert stage.rounds == FixedRoundsScheduler(rounds=4)
    assert stage.tasks == UniformTaskSampler()
    assert stage.engine == Part()
    assert stage.backend == Part(learning_rate=1e-6)
    assert stage.limits == Limits(max_prompt_tokens=100, max_response_tokens=200, max_tokens=20)
    assert stage.training == TrainingConfig(num_steps=10, tasks_per_step=2)
    assert stage.evaluation is None


def test_the_algorithms_own_estimator_is_the_default(load):
    assert load().stages[0].advantage == Credit()
    assert load().stages[0].uses["advantage"] == "credit"


def test_a_block_without_use_changes_the_default_estimator(load):
    assert load(BASE + "advantage: {scale: 2.0}").stages[0].advantage == Credit(scale=2.0)


def test_an_estimator_can_be_chosen_or_switched_off(load):
    assert load(BASE + "advantage: other-credit").stages[0].advantage == Part()
    assert load(BASE + "advantage: null").stages[0].advantage is None
    assert load(with_block("algorithm: imitate")).stages[0].advantage is None


def test_evaluation_is_read(load):
    config = load(BASE + "evaluation: {every: 5, max_rounds: 30, temperatures: [0, 1]}")
    assert config.stages[0].evaluation == EvaluationConfig(
        every=5, max_rounds=30, temperatures=(0.0, 1.0)
    )


def test_several_environments_have_weights_splits_and_names_of_their_own(load):
    text = with_block("environment: {use: maze}").replace(
        "environment: {use: maze}",
        "environments: [{use: maze, weight: 3, split: easy}, {use: maze, size: 9}, maze]",
    )
    blocks = load(text).stages[0].environments
    assert [(b.name, b.component.size, b.weight, b.split) for b in blocks] == [
        ("maze", 3, 3.0, "easy"),
        ("maze-2", 9, 1.0, "train"),
        ("maze-3", 3, 1.0, "train"),
    ]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("success", [("success", SuccessReward(), 1.0)]),
        ("{use: success, weight: 2}", [("success", SuccessReward(), 2.0)]),
        (
            "[environment, {use: format-penalty, weight: -0.5, penalty: 2}]",
            [
                ("environment", EnvironmentReward(), 1.0),
                ("format-penalty", FormatPenalty(penalty=2.0), -0.5),
            ],
        ),
    ],
)
def test_a_reward_is_one_block_or_a_weighted_list(load, block, expected):
    (stage,) = load(f"{BASE}\nreward: {block}").stages
    assert [(b.use, b.component, b.weight) for b in stage.reward] == expected


def test_without_a_reward_there_is_the_environments_own(load):
    assert load().stages[0].reward == load(BASE + "reward: null").stages[0].reward == ()


def test_a_stage_has_a_reward_of_its_own_and_overrides_reach_its_terms(load):
    text = f"{BASE}\nreward: [success]\nstages: [{{}}, {{reward: [environment, round-cost]}}]"
    first, second = load(text, "stages.1.reward.1.cost=0.5").stages
    assert [block.use for block in first.reward] == ["success"]
    assert second.reward[1].component == RoundCost(cost=0.5)


def test_trackers_belong_to_the_run(load):
    config = load(f"{BASE}\ntrackers: [quiet, {{use: quiet, project: mazes}}]")
    assert [(b.use, b.component.project) for b in config.trackers] == [
        ("quiet", "default"),
        ("quiet", "mazes"),
    ]
    assert load().trackers == ()


def test_a_model_from_scratch(load):
    config = load(with_block("model: {scratch: {num_layers: 2}}"))
    assert config.stages[0].model == ModelConfig(scratch=ScratchModel(num_layers=2))


SEVERAL = BASE.replace(
    "environment: {use: maze, size: 5}", "environments: [maze, {use: maze, weight: 2}]"
)


@pytest.mark.parametrize(
    "text",
    [
        BASE,
        BASE + STAGES,
        BASE + "stages: [{name: only}]",
        BASE + "advantage: null",
        BASE + "evaluation: {max_rounds: 9, num_tasks: 4}\noutput: elsewhere\nseed: 3",
        SEVERAL,
        BASE + "reward: [success, {use: round-cost, weight: 0.5}]\ntrackers: {use: quiet}",
        BASE + "stages: [{reward: success}, {}]",
        BASE + "stages: [{}, {model: base, seed: 4, rounds: {use: growing, rounds: [1, 2]}}]",
    ],
)
def test_the_resolved_configuration_composes_to_an_equal_one(load, catalog, text):
    config = load(text)
    written = yaml.safe_dump(resolved(config), sort_keys=False)
    assert compose(yaml.safe_load(written), {}, catalog) == config


def test_the_resolved_configuration_holds_every_default(load):
    assert resolved(load()) == {
        "name": "quick",
        "output": "runs",
        "trackers": [],
        "model": {
            **{field.name: field.default for field in attrs.fields(ModelConfig)},
            "path": "some/model",
        },
        "seed": 0,
        "environment": {"use": "maze", "weight": 1.0, "split": "train", "size": 5, "dark": False},
        "agent": {"use": "react", "context": "stop"},
        "algorithm": {"use": "learn", "kl_coef": 0.1, "betas": [0.9, 0.99]},
        "advantage": {"use": "credit", "scale": 1.0},
        "rounds": {"use": "fixed", "rounds": 4},
        "tasks": {"use": "uniform"},
        "reward": None,
        "engine": {"use": "toy", "learning_rate": 0.001},
        "backend": {"use": "toy", "learning_rate": 1e-6},
        "limits": {
            "max_prompt_tokens": 100,
            "max_response_tokens": 200,
            "max_tokens": 20,
            "max_call_seconds": 300.0,
        },
        "training": {
            "num_steps": 10,
            "tasks_per_step": 2,
            "group_size": 8,
            "save_every": 25,
            "keep_checkpoints": None,
            "max_concurrent_episodes": 128,
            "max_retries": 2,
            "max_failed_fraction": 0.1,
            "stall_seconds": 1800.0,
        },
        "evaluation": None,
    }
