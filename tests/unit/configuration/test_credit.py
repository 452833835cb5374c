"""Which estimator goes with which algorithm."""

import pytest

from agentgym_core.catalog import Catalog
from agentgym_core.config import load_config
from agentgym_core.errors import ConfigError

RUN = """
name: quick
model: {path: some/model}
environment: {use: textcraft}
agent: react
rounds: {rounds: 4}
engine: local
backend: torch
limits: {max_prompt_tokens: 100, max_response_tokens: 200, max_tokens: 20}
training: {num_steps: 10, tasks_per_step: 2, group_size: 4}
"""
NEEDS_A_CRITIC = ("gae", "gae-turn")
NEEDS_NONE = ("group-relative", "gigpo", "leave-one-out", "reinforce-pp", "reinforce-pp-baseline")
IMITATE = "{use: sft, num_demonstrations: 9}"
WITHOUT_CRITIC = ("grpo", "rloo", "reinforce-pp")


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "run.yaml"
        path.write_text(RUN + text)
        return load_config(path, [], Catalog.installed())

    return load


@pytest.mark.parametrize("advantage", NEEDS_A_CRITIC)
@pytest.mark.parametrize("algorithm", WITHOUT_CRITIC)
def test_values_want_an_algorithm_that_trains_a_critic(algorithm, advantage, load):
    with pytest.raises(ConfigError, match=f"^advantage: {advantage} reads the values of a critic"):
        load(f"algorithm: {algorithm}\nadvantage: {advantage}")
    assert load(f"algorithm: ppo\nadvantage: {advantage}").stages[0].uses["advantage"] == advantage


@pytest.mark.parametrize("advantage", NEEDS_NONE)
def test_a_critic_wants_targets(advantage, load):
    with pytest.raises(ConfigError, match=r"^advantage: ppo trains a critic, for which"):
        load(f"algorithm: ppo\nadvantage: {advantage}")
    for algorithm in WITHOUT_CRITIC:
        stage = load(f"algorithm: {algorithm}\nadvantage: {advantage}").stages[0]
        assert stage.uses["advantage"] == advantage


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "explore"])
def test_who_learns_without_advantages_takes_none(algorithm, load):
    block = IMITATE if algorithm == "sft" else algorithm
    assert load(f"algorithm: {block}").stages[0].advantage is None
    with pytest.raises(ConfigError, match=f"^advantage: {algorithm} learns without advantages"):
        load(f"algorithm: {block}\nadvantage: gae")
    with pytest.raises(ConfigError, match=r"^stages\.1\.advantage: "):
        load(f"stages: [{{algorithm: ppo}}, {{algorithm: {block}, advantage: gae}}]")


def test_what_the_run_says_is_for_the_stages_that_learn_from_advantages(load):
    config = load("advantage: gae-turn\nstages: [{algorithm: " + IMITATE + "}, {algorithm: ppo}]")
    first, second = config.stages
    assert first.advantage is None
    assert second.uses["advantage"] == "gae-turn"
