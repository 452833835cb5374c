"""What play hands to training: no failure as a reward, nothing asked that cannot fit."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from agentgym_core.agents.act import Act
from agentgym_core.handler import ModelPolicy
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import Limits
from agentgym_core.statistics import episode_metrics
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import byte_tokenizer
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Ending, Message, Sampling, Scores
from agentgym_grpo.group_relative import GroupRelative

ROOMY = Limits(max_prompt_tokens=1000, max_response_tokens=2000, max_tokens=60)


WON = ("down", "down", "lift off")
LOST = ("lift off",)


def play(world, orders, *, limits=ROOMY, max_model_len=None, say=lambda sample: WON, retries=1):
    """Groups of episodes; `say` gives the actions of an attempt, by its number."""
    renderer = Renderer(byte_tokenizer())
    turns = Counter()

    def script(request):
        actions = say(int(request.key.split("/")[1]))
        turns[request.key] += 1
        return renderer.reply_ids(
            Message("assistant", f"Action: {actions[turns[request.key] - 1]}")
        )

    sampler = ScriptedSampler(script=script, max_model_len=max_model_len)
    table = Table(
        environments={"world": world},
        agent=Act(),
        policy=ModelPolicy(renderer=renderer, sampler=sampler, limits=limits),
        max_retries=retries,
    )
    return asyncio.run(play_groups(table, orders, 8)), sampler


def order(number, *, num=1, max_rounds=10):
    return Attempts(
        environment="world",
        task=Countdown().tasks("train")[number - 1],
        num=num,
        max_rounds=max_rounds,
        sampling=Sampling(),
        seed=number,
    )


def advantages(groups):
    sequences = to_sequences(groups)
    values = GroupRelative()(sequences, Scores()).values
    return {s.episode: float(v[s.mask][0]) for s, v in zip(sequences, values, strict=True)}


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("reset", "environment-failed"), ("step", "environment-failed"), ("nan", "invalid-reward")],
)
def test_a_failed_episode_is_no_reward_and_in_no_baseline(fault, cause):
    """Task 1 fails; task 2 has the advantages that it has without task 1."""

    def say(sample):
        return WON if sample in (1, 2) else LOST

    broken = Countdown(fault=fault, only=1)
    first, second = order(1, num=4), order(2, num=4)

    groups, _ = play(broken, [first, second], say=say, retries=0)
    alone, _ = play(Countdown(), [second], say=say)
    assert {e.ending.value for e in groups[0].failures} == {cause}
    failed = len(groups[0].failures)
    metrics = episode_metrics(groups)
    assert metrics[f"dropped/{cause}"] == failed / 8
    assert metrics["episodes"] == 8 - failed
    expected = list(advantages(alone).values())
    assert expected == pytest.approx([-0.866, 0.866, 0.866, -0.866], abs=1e-3)
    assert list(advantages(groups).values())[-4:] == expected


def test_one_failed_attempt_leaves_the_baseline_to_the_others():
    """Rewards 1, 1, 0 and an engine failure: the mean is 2/3, not 1/2; the deviation 1 / sqrt 3."""

    def say(sample):
        if sample == 3:
            raise ConnectionError("no engine")
        return WON if sample < 2 else LOST

    [group], _ = play(Countdown(), [order(2, num=4)], say=say)
    assert [episode.sample for episode in group.episodes] == [0, 1, 2]
    assert [episode.ending for episode in group.failures] == [Ending.ENGINE_FAILED]
    assert list(advantages([group]).values()) == pytest.approx(
        [3**-0.5, 3**-0.5, -2 * 3**-0.5], abs=1e-5
    )


def test_a_retry_has_the_same_seed_and_is_counted():
    [group], sampler = play(Countdown(fault="step", only=1), [order(1)], retries=2)
    assert group.failures[0].failed_tries == (Ending.ENVIRONMENT_FAILED,) * 2
    assert len({request.seed for request in sampler.requests}) == 1
    assert len(sampler.requests) == 3
    assert episode_metrics([group])["retried/environment-failed"] == 2


@pytest.mark.parametrize(
    ("limits", "max_model_len"),
    [
        (Limits(max_prompt_tokens=20, max_response_tokens=2000, max_tokens=60), None),
        (ROOMY, 30),
    ],
)
def test_a_prompt_that_does_not_fit_ends_the_episode_and_no_other(limits, max_model_len):
    groups, sampler = play(
        Countdown(), [order(1), order(2)], limits=limits, max_model_len=max_model_len
    )
    assert [g.episodes[0].ending for g in groups] == [Ending.OUT_OF_TOKENS] * 2
    assert sampler.requests == [], "the engine was asked what cannot fit"
    assert to_sequences(groups) == ()


def test_a_reward_is_not_a_success():
    """Lifting off too early ends the episode; the verdict is the environment's."""
    [group], _ = play(Countdown(), [order(2)], say=lambda _: LOST)
    [episode] = group.episodes
    assert episode.ending is Ending.DONE
    assert not episode.success
    metrics = episode_metrics([group])
    assert metrics["success"] == 0.0
    assert np.isfinite(metrics["reward"])
