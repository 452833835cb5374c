"""The words for what is wrong with a file."""

import pytest

from agentgym_core.errors import ComponentNotFoundError

from .conftest import BASE, with_block


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("traning: {}", "traning: unknown key. Did you mean training?"),
        ("training: {num_stepz: 3}", "training.num_stepz: unknown key. Did you mean num_steps?"),
        ("training: {}", "training.num_steps: required field missing"),
        (
            "training: {num_steps: 0}",
            "training: num_steps must be at least 1, got 0",
        ),
        (
            "training: {num_steps: 1, max_failed_fraction: 2}",
            "training: max_failed_fraction is a share between 0 and 1, got 2.0",
        ),
        (
            "limits: {max_prompt_tokens: 9, max_response_tokens: 9, max_tokens: 10}",
            "limits: max_tokens bounds one reply and must fit into max_response_tokens, which "
            "bounds all of them: 10 is more than 9",
        ),
        ("evaluation: {every: 5}", "evaluation.max_rounds: required field missing"),
        (
            "evaluation: {max_rounds: 5, temperatures: []}",
            "evaluation: temperatures must hold at least one, such as [0.0]",
        ),
        (
            "evaluation: {max_rounds: 5, temperatures: [1, 1.0]}",
            "evaluation: temperatures must differ from each other",
        ),
        (
            "evaluation: {max_rounds: 5, temperatures: [-1]}",
            "evaluation: temperatures must not be negative, got -1.0",
        ),
        (
            "backend: {use: toy, learning_rate: fast}",
            "backend.learning_rate: expected a number, got 'fast'",
        ),
        ("rounds: {use: growing}", "rounds.rounds: required field missing"),
        ("rounds: fixed", "rounds.rounds: required field missing"),
        (
            "agent: {}",
            "agent.use: required field missing. Installed: act, plan-act, react, reflect",
        ),
        ("agent:", "agent: expected a name or a block of keys, got nothing"),
        (
            "model: {}",
            "model: give exactly one of `path` (a Hub id or folder) and `scratch`; "
            "null takes back what another file gives",
        ),
        ("name: 3", "name: expected text, got 3. Put it in quotes"),
        (
            "name: ../up",
            "name: expected a name for a folder, of letters, digits, '.', '_' and '-', got '../up'",
        ),
        ("environment: {use: maze, weight: 0}", "environment: weight must be above 0, got 0"),
        (
            "environment: {use: maze, split: 1}",
            "environment.split: expected text, got 1. Put it in quotes",
        ),
        (
            "environment: {use: maze, env_addr: 'a:8000'}",
            "environment.env_addr: expected an address such as http://host:8000, got 'a:8000'",
        ),
        (
            "environment: {use: maze, env_addr: []}",
            "environment.env_addr: expected at least one address, got none",
        ),
        (
            "environment: {use: maze, env_addr: 'http://a:8000', python: bin/python}",
            "environment.python: sessions behind env_addr run where the servers do. Give one of "
            "the two keys",
        ),
        (
            "environment: {use: maze, dialect: upstream}",
            "environment.dialect: it has no effect without env_addr",
        ),
        (
            "environment: {use: maze, python: bin/no-such-python}",
            "environment.python: bin/no-such-python cannot be started: No such file or directory",
        ),
        (
            "environment: {use: maze, host: {recycle_after: 5}}",
            "environment.host: this environment runs in the process of the run, which has no "
            "workers to set. Give host.workers to let it run in workers, or leave `host` out",
        ),
        (
            "environment: {use: maze, host: {worker: 5}}",
            "environment.host.worker: unknown key. Did you mean workers?",
        ),
        ("environments: [maze]", "environments: give `environment` or `environments`, not both"),
        (
            "reward: []",
            "reward: expected at least one reward, got none. Leave the key out to train on the "
            "environment's own",
        ),
        (
            "reward: {weight: 2}",
            "reward.use: required field missing. Installed: environment, "
            "format-penalty, round-cost, success",
        ),
        (
            "reward: [success, {use: success, weight: .inf}]",
            "reward.1.weight: expected a number, got inf. It must be finite as a 32-bit float",
        ),
        ("reward: {use: success, weight: big}", "reward.weight: expected a number, got 'big'"),
        (
            "reward: [{use: format-penalty, penlty: 1}]",
            "reward.0.penlty: unknown key. Did you mean penalty?",
        ),
        ("reward: {use: round-cost, cost: -1}", "reward: 'cost' must be >= 0: -1.0"),
        ("reward: 3", "reward: expected a name or a block of keys, got 3"),
        (
            "trackers: [{use: quiet, projct: a}]",
            "trackers.0.projct: unknown key. Did you mean project?",
        ),
        (
            "trackers: {}",
            "trackers.use: required field missing. Installed: quiet, tensorboard, wandb",
        ),
        (
            "tasks: {use: curriculum, floor: 0}",
            "tasks: floor must be above 0 and at most 1, got 0",
        ),
        ("tasks: from-file", "tasks.path: required field missing"),
        ("stages: []", "stages: expected a list of blocks, got []"),
        ("stages: [imitate]", "stages.0: expected a block of keys, got 'imitate'"),
    ],
)
def test_a_wrong_block(error, block, message):
    assert error(with_block(block)) == message


@pytest.mark.parametrize(
    "key",
    [
        "name",
        "model",
        "environment",
        "agent",
        "algorithm",
        "engine",
        "backend",
        "limits",
        "training",
    ],
)
def test_a_missing_block(error, key):
    kept = [line for line in BASE.splitlines() if not line.startswith(f"{key}:")]
    assert error("\n".join(kept)) == f"{key}: required field missing"


def test_rounds_are_always_asked_for(error):
    assert error(BASE.replace("rounds: {rounds: 4}", "")) == "rounds.rounds: required field missing"


def test_an_empty_list_of_environments(error):
    text = BASE.replace("environment: {use: maze, size: 5}", "environments: []")
    assert error(text) == "environments: expected at least one environment, got none"


def test_the_path_of_one_environment_among_several(error):
    text = BASE.replace(
        "environment: {use: maze, size: 5}", "environments: [maze, {use: maze, size: big}]"
    )
    assert error(text) == "environments.1.size: expected a whole number, got 'big'"


def test_a_name_that_is_not_installed(load):
    with pytest.raises(ComponentNotFoundError) as caught:
        load(with_block("environment: {use: textcraft}"))
    assert str(caught.value) == (
        "no environment is called 'textcraft'. Installed: maze. "
        "It ships in a plugin that is not installed: pip install agentgym-textcraft, or from a "
        "clone pip install ./plugins/agentgym-textcraft"
    )
