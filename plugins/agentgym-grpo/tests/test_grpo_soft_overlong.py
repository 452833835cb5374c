import attrs
import pytest

from agentgym_core.rewards import EnvironmentReward, RewardBlock, rewarded
from agentgym_core.types import Ending, Episode, Task, Turn
from agentgym_grpo.soft_overlong import SoftOverlong


def episode(*num_tokens):
    turns = tuple(
        Turn(
            sequence=0,
            prompt_ids=(1,) * 50,
            token_ids=(2,) * num,
            logprobs=(-0.5,) * num,
            finish_reason="stop",
            policy_version=0,
            text="",
            reward=1.0,
        )
        for num in num_tokens
    )
    return Episode(
        task=Task(id="room_1"),
        environment="room",
        sample=0,
        seed=0,
        max_rounds=3,
        turns=turns,
        messages=(),
        ending=Ending.DONE,
        success=True,
    )


@pytest.mark.parametrize(
    ("tokens", "punishment"),
    # max_tokens 20, margin 8: free up to 12, then (12 - tokens) / 8, -1 from 20 on.
    [(0, 0), (11, 0), (12, 0), (13, -0.125), (16, -0.5), (20, -1), (21, -1), (400, -1)],
)
def test_equation_13(tokens, punishment):
    value = SoftOverlong(max_tokens=20, margin=8)(episode(tokens))
    assert value.turns == (punishment,)
    assert value.parts == {"soft_overlong": punishment}


def test_it_is_of_the_whole_episode_and_on_its_last_turn():
    # 10 + 6 sampled tokens; the 100 that were read do not count.
    assert SoftOverlong(max_tokens=20, margin=8)(episode(10, 6)).turns == (0, -0.5)
    assert SoftOverlong(max_tokens=20, margin=8)(episode()).turns == ()


def test_beside_the_environments_reward():
    blocks = [
        RewardBlock(use="environment", component=EnvironmentReward()),
        RewardBlock(
            use="soft-overlong", component=SoftOverlong(max_tokens=20, margin=8), weight=2.0
        ),
    ]
    played = rewarded(episode(10, 6), blocks)
    assert [turn.reward for turn in played.turns] == [1, 0]
    assert played.turns[-1].rewards["soft_overlong"] == -0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0, "margin": 1}, "'max_tokens' must be > 0"),
        ({"max_tokens": 9, "margin": 0}, "'margin' must be > 0"),
        ({"max_tokens": 9, "margin": 10}, "margin is 10, more than max_tokens, 9"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        SoftOverlong(**fields)


def test_all_of_it_may_be_margin():
    even = SoftOverlong(max_tokens=4, margin=4)
    assert even(episode(1)).turns == (-0.25,)
    assert attrs.evolve(even, max_tokens=5)(episode(1)).turns == (0,)
