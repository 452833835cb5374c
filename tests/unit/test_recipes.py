"""Every recipe composes, and those of the paper say what the paper says."""

from pathlib import Path

import attrs
import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.cli.train import evaluated_tasks
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError
from agentgym_core.protocols import StepReport

RECIPES = Path(__file__).parents[2] / "recipes"


def load(name):
    return load_config(RECIPES / name, [], Catalog.installed())


@pytest.mark.parametrize(
    ("name", "played"),
    [("quickstart.yaml", "held-out tasks"), ("mixed_tiny.yaml", "tasks of train")],
)
def test_a_run_says_which_tasks_its_success_is_of(name, played):
    assert evaluated_tasks(load(name)) == played


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_composes(path):
    config = load(path.name)
    assert config.name.startswith(path.stem.replace("_", "-"))


@attrs.frozen(kw_only=True)
class Paper:
    """What AgentGym-RL's scripts set for one environment and horizon."""

    horizons: list[int]
    tasks: tuple[int, int]
    passes: tuple[int, int]
    tokens: tuple[int, int, int]
    evaluation: int


TEXTCRAFT = Paper(
    horizons=[30, 30, 30, 30],
    tasks=(32, 8),
    passes=(4, 2),
    tokens=(512, 10240, 512),
    evaluation=30,
)
BABYAI = Paper(
    horizons=[20, 20, 20, 20],
    tasks=(16, 8),
    passes=(2, 1),
    tokens=(1024, 4096, 200),
    evaluation=20,
)
PAPER = {
    "textcraft_fixed.yaml": TEXTCRAFT,
    "textcraft_scaling.yaml": attrs.evolve(TEXTCRAFT, horizons=[10, 20, 30, 30]),
    "babyai_fixed.yaml": BABYAI,
    "babyai_scaling.yaml": attrs.evolve(
        BABYAI,
        horizons=[6, 13, 20, 20],
        tasks=(32, 4),
        passes=(4, 2),
        tokens=(512, 8192, 512),
    ),
}


@pytest.mark.parametrize(("name", "paper"), PAPER.items(), ids=PAPER)
def test_the_papers_settings(name, paper):
    (stage,) = load(name).stages
    assert [stage.rounds.max_rounds(step, None) for step in (0, 100, 200, 299)] == paper.horizons
    assert stage.model.path == "Qwen/Qwen2.5-7B-Instruct"
    training, limits, grpo = stage.training, stage.limits, stage.algorithm
    assert (training.tasks_per_step, training.group_size) == paper.tasks
    assert (grpo.num_minibatches, grpo.num_epochs) == paper.passes
    found = (limits.max_prompt_tokens, limits.max_response_tokens, limits.max_tokens)
    assert found == paper.tokens
    assert (grpo.kl_coef, grpo.kl_estimator) == (0.001, "k3-plain")
    assert stage.backend.learning_rate == 1e-6
    assert stage.engine.temperature == 1.0
    assert stage.evaluation.max_rounds == paper.evaluation
    assert stage.evaluation.temperatures == (1.0,)


def test_the_adaptive_horizon_begins_as_the_stages_do_and_moves_on_a_plateau_alone():
    (stage,) = load("textcraft_adaptive.yaml").stages
    state = stage.rounds.initial_state()
    horizons = []
    for step in range(40):
        horizons.append(stage.rounds.max_rounds(step, state))
        report = StepReport(step=step, metrics={"success": step / 40, "horizon_cut": 1.0})
        state = stage.rounds.next_state(state, report)
    assert set(horizons) == {10}
    assert stage.rounds.rounds == (10, 20, 30)


@pytest.mark.parametrize(
    ("name", "horizons"),
    [("searchqa_fixed.yaml", [5, 5, 5, 5]), ("searchqa_scaling.yaml", [5, 8, 10, 10])],
)
def test_the_papers_settings_of_searchqa(name, horizons):
    (stage,) = load(name).stages
    assert [stage.rounds.max_rounds(step, None) for step in (0, 100, 200, 299)] == horizons
    assert stage.model.path == "Qwen/Qwen2.5-7B-Instruct"
    training, limits, grpo = stage.training, stage.limits, stage.algorithm
    assert (training.tasks_per_step, training.group_size) == (32, 4)
    assert (grpo.num_minibatches, grpo.num_epochs) == (4, 2)
    assert (limits.max_prompt_tokens, limits.max_response_tokens) == (1024, 8192)
    assert limits.max_tokens == 512
    assert (grpo.kl_coef, grpo.kl_estimator) == (0.001, "k3-plain")
    assert stage.backend.learning_rate == 1e-6
    assert stage.engine.temperature == 1.0
    assert (stage.evaluation.max_rounds, stage.evaluation.split) == (30, "sample")
    assert stage.evaluation.temperatures == (1.0,)
    (block,) = stage.environments
    with pytest.raises(ValueError, match=r"`data`: there is no data/searchqa/nq/train\.jsonl"):
        block.component.tasks("train")


def test_the_tiny_searchqa_asks_what_it_is_evaluated_on():
    imitate, reinforce = load("searchqa_tiny.yaml").stages
    assert imitate.environments == reinforce.environments
    assert len(reinforce.environments[0].component.tasks(reinforce.evaluation.split)) == 8
    assert reinforce.training.num_steps == 3


@pytest.mark.parametrize(
    ("name", "horizons", "max_response_tokens"),
    [
        ("sciworld_fixed.yaml", [20, 20, 20, 20], 4096),
        ("sciworld_scaling.yaml", [10, 20, 30, 30], 8192),
    ],
)
def test_the_papers_settings_for_sciworld(name, horizons, max_response_tokens):
    (stage,) = load(name).stages
    assert [stage.rounds.max_rounds(step, None) for step in (0, 100, 200, 299)] == horizons
    assert stage.model.path == "Qwen/Qwen2.5-7B-Instruct"
    training, limits, grpo = stage.training, stage.limits, stage.algorithm
    assert (training.tasks_per_step, training.group_size) == (16, 8)
    assert (grpo.num_minibatches, grpo.num_epochs) == (2, 1)
    assert (limits.max_prompt_tokens, limits.max_response_tokens) == (1024, max_response_tokens)
    assert limits.max_tokens == 200
    assert (grpo.kl_coef, grpo.kl_estimator) == (0.001, "k3-plain")
    assert stage.backend.learning_rate == 1e-6
    assert stage.engine.temperature == 1.0
    assert stage.evaluation.max_rounds == 30
    assert stage.evaluation.temperatures == (1.0,)


def test_the_quickstarts_horizon_grows_and_fits_every_plan():
    config = load("quickstart.yaml")
    reinforce = config.stages[-1]
    last = reinforce.training.num_steps - 1
    horizons = [reinforce.rounds.max_rounds(step, None) for step in range(last + 1)]
    assert horizons == sorted(horizons)
    assert horizons[0] < horizons[-1]
    assert horizons[-1] >= 6, "the longest plan has 6 actions"
    train, test = (reinforce.environments[0].component.tasks(split) for split in ("train", "test"))
    assert {task.data["goal"] for task in train} == {task.data["goal"] for task in test}
    assert not {task.id for task in train} & {task.id for task in test}


def test_one_attempt_at_a_task_is_nothing_to_compare():
    with pytest.raises(ConfigError, match=r"^stages\.2\.training\.group_size: group-relative .*2"):
        load_config(
            RECIPES / "quickstart.yaml", ["stages.2.training.group_size=1"], Catalog.installed()
        )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.2.advantage=null", "advantage: grpo learns from advantages: name an estimator"),
        ("seed=-1", "seed: expected a whole number from 0 to 2"),
        ("seed=99999999999999999999", "seed: expected a whole number from 0 to 2"),
        ("stages.x.seed=1", r"stages\.x: stages are numbered from 0"),
        ("stages.-1.seed=1", r"stages\.-1: stages are numbered from 0"),
        ("model.scratch.num_heads=3", r"model\.scratch: hidden_size is divided into num_heads"),
        ("model.scratch.num_key_value_heads=3", r"scratch: num_heads share num_key_value_heads"),
        ("model.scratch.hidden_size=0", r"model\.scratch: 'hidden_size' must be >= 1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(RECIPES / "quickstart.yaml", [override], Catalog.installed())
