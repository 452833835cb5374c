"""docs/configuration.md says what the code says."""

import ast
import re
from pathlib import Path

import attrs
import pytest
import yaml

import agentgym_core
from agentgym_core import builtin
from agentgym_core.catalog import Catalog
from agentgym_core.config import EnvironmentBlock, load_config
from agentgym_core.curriculum import CurriculumTaskSampler
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.rewards import RewardBlock
from agentgym_core.settings import EvaluationConfig, Limits, TrainingConfig
from agentgym_core.stages import SHARED_KEYS

CORE = Path(agentgym_core.__file__).parent
PAGE = (CORE.parent / "docs" / "configuration.md").read_text(encoding="utf-8")


def docstrings(cls):
    """Keys of a settings class, with the docstrings that stand below them in its source."""
    module = CORE / f"{cls.__module__.rpartition('.')[2]}.py"
    (node,) = (
        node
        for node in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    found = {}
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_docstring = isinstance(following, ast.Expr)
            text = ast.literal_eval(following.value) if is_docstring else ""
            found[statement.target.id] = re.sub(r"\s+", " ", text)
    assert set(found) == {field.name for field in attrs.fields(cls)}
    return found


def default(field):
    if field.default is attrs.NOTHING:
        return "required"
    if isinstance(field.default, str | tuple):
        return f"`{list(field.default) if isinstance(field.default, tuple) else field.default}`"
    return yaml.safe_dump(field.default).split("\n")[0]


@pytest.mark.parametrize("cls", [TrainingConfig, EvaluationConfig])
def test_a_row_for_every_setting(cls):
    for key, text in docstrings(cls).items():
        field = getattr(attrs.fields(cls), key)
        assert f"\n| `{key}` | {default(field)} | {text} |\n" in PAGE


def test_a_row_for_every_limit():
    for key, text in docstrings(Limits).items():
        assert f"\n| `{key}` | {text} |\n" in PAGE


@pytest.mark.parametrize("key", ["use", "weight", "split"])
def test_a_row_for_every_key_of_an_environments_block(key):
    assert f"\n| `{key}` | {default(getattr(attrs.fields(EnvironmentBlock), key))} | " in PAGE
    assert docstrings(EnvironmentBlock)[key] in PAGE


def test_a_row_for_every_key_of_the_curriculum():
    for key, text in docstrings(CurriculumTaskSampler).items():
        field = getattr(attrs.fields(CurriculumTaskSampler), key)
        assert f"\n| `{key}` | {default(field)} | {text} |\n" in PAGE


def test_a_row_for_the_weight_of_a_reward():
    field = attrs.fields(RewardBlock).weight
    text = docstrings(RewardBlock)["weight"]
    assert f"\n| `weight` | {default(field)} | {text} |\n" in PAGE


@pytest.mark.parametrize("kind", ["task-sampler", "reward", "tracker"])
def test_a_row_for_everything_built_in_that_names_its_keys(kind):
    core = Catalog.of_modules(builtin)
    for name in core.names(kind):
        cls = core.find(kind, name)
        row = re.search(rf"\n\| `{name}` \|.*", PAGE)
        assert row, name
        if cls is not CurriculumTaskSampler:  # which has a table of its own
            for field in attrs.fields(cls):
                number = f" ({field.default})" if isinstance(field.default, float) else ""
                assert f"`{field.name}`{number}" in row[0] or f"`{field.name}: " in row[0]


def test_a_row_for_every_key_of_the_model():
    for key, text in docstrings(ModelConfig).items():
        assert re.search(rf"\n\| `{key}` \|.*\| {re.escape(text)}", PAGE)


def test_every_key_of_a_model_from_scratch():
    for field in attrs.fields(ScratchModel):
        assert f"`{field.name}` ({field.default})" in PAGE


@pytest.mark.parametrize(
    "key", ["name", "output", "trackers", "model", *SHARED_KEYS, "stages", "include"]
)
def test_a_row_for_every_key_of_a_run(key):
    assert f"\n| `{key}` | " in PAGE


def test_the_example_composes(tmp_path):
    example = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    (tmp_path / "run.yaml").write_text(example[1])
    (command,) = re.findall(r"^agentgym train run.yaml (.*)$", PAGE, re.MULTILINE)[:1]
    assert command == "training.num_steps=10 'rounds.rounds=[4, 8]'"
    overrides = ["training.num_steps=10", "rounds.rounds=[4, 8]"]
    (stage,) = load_config(tmp_path / "run.yaml", overrides, Catalog.installed()).stages
    assert stage.name == "grpo"
    assert stage.training.num_steps == 10
