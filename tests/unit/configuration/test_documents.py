"""Files, includes and overrides, before any class checks them."""

import pytest

from agentgym_core.agents.act import Act
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError
from agentgym_core.settings import EvaluationConfig, TrainingConfig

from .conftest import BASE, Growing, Learn, Maze, Part, with_block


def test_a_missing_file(catalog, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "no.yaml", [], catalog)
    assert str(caught.value) == f"there is no file {tmp_path}/no.yaml"


def test_a_folder_is_no_file(catalog, tmp_path):
    with pytest.raises(ConfigError, match=f"^cannot read {tmp_path}: .*Is a directory"):
        load_config(tmp_path, [], catalog)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nseed: 1\nname: b\n", "run.yaml:3: the key 'name' stands here and on line 1"),
        ("model: {path: a, path: b}", "run.yaml:1: the key 'path' stands here and on line 1"),
        ("name: [a\nseed: 1", "run.yaml:2: expected ',' or ']', but got ':'"),
        ("name: a\n\tseed: 1", "run.yaml:2: found character '\\t' that cannot start any token"),
        ("", "run.yaml: expected a file of keys and values, got nothing"),
        ("- a", "run.yaml: expected a file of keys and values, got ['a']"),
        ("include: 3", "run.yaml: include: expected text or a list, got 3"),
    ],
)
def test_a_file_that_is_no_document(error, text, message):
    assert error(text) == message


def test_anchors_and_merge_keys_are_no_duplicates(load):
    text = with_block("limits: &l {max_prompt_tokens: 1, max_response_tokens: 9, max_tokens: 9}")
    text += "\nstages: [{limits: {<<: *l, max_tokens: 3}}]"
    assert load(text).stages[0].limits.max_tokens == 3


def test_a_date_is_text(load):
    assert load(with_block("name: 2026-11-29")).name == "2026-11-29"


def test_an_included_file_lies_under_the_including_one(load):
    config = load(
        "include: base.yaml\ntraining: {num_steps: 3}\nalgorithm: {kl_coef: 0.5}\nagent: act",
        base=BASE,
    )
    (stage,) = config.stages
    assert stage.training == TrainingConfig(num_steps=3, tasks_per_step=2)
    assert stage.algorithm == Learn(kl_coef=0.5)
    assert stage.agent == Act()


def test_a_block_of_another_component_is_replaced_whole(load):
    config = load("include: base.yaml\nrounds: {use: growing, rounds: [2, 3]}", base=BASE)
    assert config.stages[0].rounds == Growing(rounds=(2, 3))


def test_the_last_of_several_includes_wins(load):
    config = load(
        "include: [base.yaml, more.yaml]\nname: top",
        base=BASE,
        more="name: more\nseed: 7\ntraining: {num_steps: 4}",
    )
    assert (config.name, config.stages[0].seed) == ("top", 7)
    assert config.stages[0].training == TrainingConfig(num_steps=4, tasks_per_step=2)


def test_includes_are_relative_to_the_including_file(load, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yaml").write_text("include: ../base.yaml\nname: deep")
    assert load("include: deep/a.yaml", base=BASE).name == "deep"


def test_one_environment_in_a_file_takes_the_place_of_several_below_it(load):
    several = BASE.replace("environment: {use: maze, size: 5}", "environments: [maze, maze]")
    config = load("include: base.yaml\nenvironment: {use: maze, size: 8}", base=several)
    assert [block.component for block in config.stages[0].environments] == [Maze(size=8)]
    config = load("include: base.yaml\nenvironments: [maze, maze]", base=BASE)
    assert [block.component for block in config.stages[0].environments] == [Maze(), Maze()]


def test_files_that_include_each_other(error):
    message = error("include: a.yaml", a="include: run.yaml")
    assert message == "files include each other: run.yaml includes a.yaml includes run.yaml"


def test_a_missing_include_names_the_including_file(error):
    assert error("include: gone.yaml") == "there is no file gone.yaml, which run.yaml includes"


def test_overrides_are_yaml_values(load):
    config = load(
        BASE,
        "training.num_steps=20",
        "backend.learning_rate=1e-4",
        "name=other",
        "environment.dark=true",
        "rounds={use: growing, rounds: [4,8]}",
        "evaluation.max_rounds=9",
    )
    (stage,) = config.stages
    assert config.name == "other"
    assert stage.training.num_steps == 20
    assert stage.backend == Part(learning_rate=1e-4)
    assert stage.environments[0].component == Maze(size=5, dark=True)
    assert stage.rounds == Growing(rounds=(4, 8))
    assert stage.evaluation == EvaluationConfig(max_rounds=9)


def test_an_override_reaches_into_a_name_alone(load):
    assert load(BASE, "engine.learning_rate=2.0").stages[0].engine == Part(learning_rate=2.0)


def test_a_name_alone_keeps_the_fields_of_the_same_component(load):
    assert load(BASE, "backend=toy").stages[0].backend == Part(learning_rate=1e-6)


def test_the_order_of_overrides_on_different_keys_does_not_matter(load):
    changes = ["rounds.use=growing", "rounds.rounds=[4,8]"]
    for order in (changes, changes[::-1]):
        assert load(BASE, *order).stages[0].rounds == Growing(rounds=(4, 8))


def test_a_list_is_replaced_and_its_entries_can_be_numbered(load):
    text = BASE.replace("environment: {use: maze, size: 5}", "environments: [maze, maze]")
    config = load(text, "environments.1.size=7")
    assert [block.component.size for block in config.stages[0].environments] == [3, 7]
    assert load(text, "environments=[maze]").stages[0].environments[0].component == Maze()


def test_the_last_of_two_equal_overrides_wins(load):
    assert load(BASE, "seed=1", "seed=2").stages[0].seed == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainig.num_steps=3", "trainig: unknown key. Did you mean training?"),
        ("training.num_stepz=3", "training.num_stepz: unknown key. Did you mean num_steps?"),
        ("training.num_steps=many", "training.num_steps: expected a whole number, got 'many'"),
        (
            "training.num_steps",
            "override 'training.num_steps': expected key=value, such as training.num_steps=10",
        ),
        (
            "training..x=3",
            "override 'training..x=3': expected key=value, such as training.num_steps=10",
        ),
        ("model=some/model", "model: expected a block of keys, got 'some/model'"),
        ("seed=[1", "override 'seed=[1': expected ',' or ']', but got '<stream end>'"),
        (
            "stages.0.seed=1",
            "stages.0: this run has no list of stages; it is one, whose keys stand by themselves: "
            "leave out `stages.0.`",
        ),
        (
            "include=x.yaml",
            "include: unknown key. The keys are: name, output, trackers, model, seed, environment, "
            "environments, agent, algorithm, advantage, rounds, tasks, engine, backend, reward, "
            "limits, training, evaluation, stages",
        ),
    ],
)
def test_a_wrong_override(error, override, message):
    assert error(BASE, override) == message
