"""How actions are read."""

import pytest

from agentgym_babyai.commands import Command, Refusal, read_command
from agentgym_babyai.phrases import LONG


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("go to red ball 1", "go to red ball 1"),
        ("  Go To Red Ball 1.  ", "go to red ball 1"),
        ("`go to red ball 1`", "go to red ball 1"),
        ("go_to_red_ball_1", "go to red ball 1"),
        ("go-to red-ball 1", "go to red ball 1"),
        ("goto the red ball 1", "go to red ball 1"),
        ("go to red ball", "go to red ball"),
        ("go to red ball 1 2", "go to red ball 12"),  # digits apart, as tokenizers write them
        ("pick up gray key 2", "pick up grey key 2"),
        ("pickup grey key 2", "pick up grey key 2"),
        ("PICKUP Grey_Key 2!", "pick up grey key 2"),
        ("go through blue door 1", "go through blue door 1"),
        ("toggle and go through blue door 1", "toggle and go through blue door 1"),
        ("toggle", "toggle"),
        ("toggle the door", "toggle"),
        ("toggle the red door", "toggle"),
        ("drop it", "drop"),
        ("turn left to see more", "turn left"),
        ("Turn right,", "turn right"),
        ("move_forward", "move forward"),
        ("move forward and look", "move forward"),
        ("check available actions", "check available actions"),
    ],
)
def test_what_is_understood(text, read):
    assert str(read_command(text, LONG)) == read


def test_a_name_after_toggle_is_kept():
    assert read_command("toggle red door 2", LONG) == Command(
        verb="toggle", name="red door", number=2
    )


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", LONG.not_an_action),
        ("...", LONG.not_an_action),
        ("red ball 1", LONG.not_an_action),
        ("I go to red ball 1", LONG.not_an_action),
        ("turn", LONG.not_an_action),
        ("turn around", LONG.not_an_action),
        ("go red ball 1", LONG.not_an_action),
        ("go to", LONG.no_thing),
        ("go to ball 1", LONG.no_thing),
        ("go to pink ball 1", LONG.no_thing),
        ("pick up red", LONG.no_thing),
        ("go to 1", LONG.no_thing),
        ("turn left, turn left", LONG.several_actions),
        ("turn left and move forward", LONG.several_actions),
        ("turn left\nmove forward", LONG.several_actions),
        ("go to red ball 1 then pick up red ball 1", LONG.several_actions),
        ("move forward 3", LONG.several_actions),
    ],
)
def test_what_is_refused(text, refusal):
    with pytest.raises(Refusal) as raised:
        read_command(text, LONG)
    assert str(raised.value) == refusal


def test_endless_digits_are_a_number_of_nothing():
    assert read_command("go to red ball " + "9" * 5000, LONG).number == 9999
