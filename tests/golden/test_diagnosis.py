import pytest

from agentgym_core.diagnosis import DIAGNOSES, diagnose
from agentgym_core.types import Ending, Episode, Task, Turn


def turn(action, observation="nothing happens"):
    return Turn(
        sequence=0,
        prompt_ids=(1,),
        token_ids=(2,),
        logprobs=(-1.0,),
        finish_reason="stop",
        policy_version=0,
        text="",
        action=action,
        observation=observation,
        rounds=1,
        format_error=action is None,
    )


def episode(*turns, ending=Ending.DONE, success=False, max_rounds=9):
    return Episode(
        task=Task(id="room_1"),
        environment="room",
        sample=0,
        seed=0,
        max_rounds=max_rounds,
        turns=turns,
        messages=(),
        ending=ending,
        success=success,
    )


STOPPED, CUT = Ending.AGENT_STOPPED, Ending.OUT_OF_ROUNDS


@pytest.mark.parametrize(
    ("played", "names"),
    [
        (episode(turn("go"), success=True), ()),
        (episode(*[turn("go")] * 2), ()),
        (episode(*[turn("go")] * 3), ("loop",)),
        (episode(turn("go"), turn("look"), turn("go"), turn("look"), turn("go")), ("loop",)),
        (episode(turn("go", "a"), turn("go", "b"), turn("go", "c")), ()),
        (episode(*[turn(None)] * 3), ("format-errors",)),
        (episode(turn("go"), ending=STOPPED), ("premature-stop",)),
        (episode(turn("go"), ending=STOPPED, success=True), ()),
        (episode(turn("go"), ending=STOPPED, max_rounds=1), ()),
        (episode(turn("go"), ending=Ending.OUT_OF_TOKENS), ("context-overflow",)),
        (episode(turn("go"), ending=CUT), ("horizon-cut",)),
        (episode(turn("go"), ending=CUT, success=True), ()),
        (episode(*[turn("go")] * 3, turn(None), ending=CUT), ("loop", DIAGNOSES[3], DIAGNOSES[4])),
        (episode(*[turn("go")] * 3, ending=Ending.ENGINE_FAILED), ()),
    ],
)
def test_what_went_wrong_by_hand(played, names):
    assert diagnose(played) == names
