"""A plugin of toys, and a run that composes them."""

import re
from types import ModuleType
from typing import ClassVar

import attrs
import pytest

from agentgym_core import builtin, hookimpl
from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError
from agentgym_core.protocols import Algorithm, Environment


@attrs.frozen(kw_only=True)
class Maze(Environment):
    size: int = 3
    dark: bool = False


@attrs.frozen(kw_only=True)
class Credit:
    scale: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()


@attrs.frozen(kw_only=True)
class Learn(Algorithm):
    default_advantage: ClassVar[str] = "credit"
    kl_coef: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)

    def check(self, engine):
        if engine.learning_rate > 9:
            raise ValueError("too hot to learn from")


@attrs.frozen(kw_only=True)
class Imitate(Algorithm):
    data: str | None = None


@attrs.frozen(kw_only=True)
class Growing:
    rounds: tuple[int, ...]
    steps_per_stage: int = 100


@attrs.frozen(kw_only=True)
class Part:
    learning_rate: float = 1e-3
    needs: ClassVar[frozenset[str]] = frozenset()


@attrs.frozen(kw_only=True)
class Quiet:
    project: str = "default"


def toy_plugin():
    module = ModuleType("toy_plugin")
    registrations = {
        "register_environments": {"maze": "Maze"},
        "register_algorithms": {"learn": "Learn", "imitate": "Imitate"},
        "register_advantage_estimators": {"credit": "Credit", "other-credit": "Part"},
        "register_round_schedulers": {"growing": "Growing"},
        "register_engines": {"toy": "Part"},
        "register_backends": {"toy": "Part"},
        "register_trackers": {"quiet": "Quiet"},
    }

    def hook_for(names):
        def hook(register):
            for name, cls in names.items():
                register(name, f"{__name__}:{cls}")

        return hook

    for hook_name, names in registrations.items():
        hook = hook_for(names)
        setattr(module, hook_name, hookimpl(hook, specname=hook_name))
    return module


@pytest.fixture(scope="module")
def catalog():
    return Catalog.of_modules(builtin, toy_plugin())


BASE = """
name: quick
model: {path: some/model}
environment: {use: maze, size: 5}
agent: react
algorithm: {use: learn, kl_coef: 0.1}
rounds: {rounds: 4}
engine: toy
backend: {use: toy, learning_rate: 1e-6}
limits: {max_prompt_tokens: 100, max_response_tokens: 200, max_tokens: 20}
training: {num_steps: 10, tasks_per_step: 2}
"""


@pytest.fixture
def load(tmp_path, catalog):
    def load(text=BASE, *overrides, **files):
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        (tmp_path / "run.yaml").write_text(text)
        return load_config(tmp_path / "run.yaml", overrides, catalog)

    return load


@pytest.fixture
def error(load, tmp_path):
    def error(text=BASE, *overrides, **files):
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides, **files)
        message = str(caught.value).replace(f"{tmp_path}/", "")
        return re.sub(r" \(package [\w.]+ 0\)$", "", message)  # see test_catalog.py

    return error


def with_block(block):
    """BASE, where a top-level block takes the place of the one with the same key."""
    key = block.split(":")[0]
    kept = [line for line in BASE.splitlines() if not line.startswith(f"{key}:")]
    return "\n".join([*kept, block])
