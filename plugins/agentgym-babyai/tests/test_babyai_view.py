"""What is seen and the ways through it, by hand."""

import numpy as np
import pytest

from agentgym_babyai.levels import LEVELS, find_level
from agentgym_babyai.phrases import LONG
from agentgym_babyai.view import Thing, View, numbered
from agentgym_babyai.world import World


def view_of(*rows, carried=None):
    """Rows from far to near; the player is `^`, walls are `#`, floor is `.`, the rest is unseen.

    Letters: B a red ball, K a red key, D a closed, O an open, L a locked red door.
    """
    letters = {"B": ("ball", ""), "K": ("key", ""), "D": ("door", "closed")}
    letters |= {"O": ("door", "open"), "L": ("door", "locked")}
    here = rows[-1].index("^")
    places = {
        (len(rows) - 1 - row, column - here): letter
        for row, letters_of in enumerate(rows)
        for column, letter in enumerate(letters_of)
        if letter not in " ^"
    }
    things = [
        Thing(kind=letters[letter][0], color="red", place=place, state=letters[letter][1])
        for place, letter in places.items()
        if letter in letters
    ]
    return View(
        things=numbered(things),
        floor=frozenset(place for place, letter in places.items() if letter == "."),
        walls=frozenset(place for place, letter in places.items() if letter == "#"),
        carried=carried,
    )


def test_numbers_count_from_near_to_far_and_left_to_right():
    view = view_of(
        "B.B",
        "..K",
        "B^B",
    )
    # distances: 1 and 1 at the sides, 3 and 3 in the corners; the key is the only one of its kind
    assert [(thing.label, thing.place) for thing in view.things] == [
        ("red ball 1", (0, -1)),
        ("red ball 2", (0, 1)),
        ("red key 1", (1, 1)),
        ("red ball 3", (2, -1)),
        ("red ball 4", (2, 1)),
    ]


@pytest.mark.parametrize(
    ("rows", "target", "way"),
    [
        (["B", "^"], (1, 0), ()),
        (["B", ".", "^"], (2, 0), ("forward",)),
        (["..B", ".^."], (1, 1), ("forward", "right")),  # one turn is less than two
        (["##B", "#^."], (1, 1), ("right", "forward", "left")),
        (["...", ".#B", "#^#"], (1, 1), None),
        (["....", "..#B", "#^##"], (1, 2), (*["forward"] * 2, "right", *["forward"] * 2, "right")),
        (["B", "D", "^"], (2, 0), None),
        (["B", "O", "^"], (2, 0), ("forward",)),
        (["B", "K", "^"], (2, 0), None),
        (["B", " ", "^"], (2, 0), None),  # what is not seen is not walked on
    ],
)  # fmt: skip
def test_the_shortest_way(rows, target, way):
    assert view_of(*rows).way_to(target) == way


def test_a_description():
    view = view_of(
        "B.#",
        "..D",
        "#^.",
        carried="blue key",
    )
    assert LONG.describe(view) == (
        "You see:\n"
        "- red door 1, closed: 1 ahead, 1 right\n"
        "- red ball 1: 2 ahead, 1 left\n"
        "Free steps: ahead 2+, left 0 (wall), right 1+.\n"
        "You carry a blue key."
    )


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_the_view_is_the_simulators_image(level):
    """Against the array that minigrid gives its agents: type, colour and state of each place."""
    kinds = {"door": 4, "key": 5, "ball": 6, "box": 7}
    colors = {"red": 0, "green": 1, "blue": 2, "purple": 3, "yellow": 4, "grey": 5}
    states = {"": 0, "open": 0, "closed": 1, "locked": 2}
    world = World(level, seed=1)
    for turn in range(8):
        view, image = world.view(), world.simulator.gen_obs()["image"]
        expected = np.zeros((7, 7, 3), dtype=int)
        for ahead, right in view.floor:
            expected[3 + right, 6 - ahead] = (1, 0, 0)
        for ahead, right in view.walls:
            expected[3 + right, 6 - ahead] = (2, 5, 0)
        for thing in view.things:
            ahead, right = thing.place
            code = (kinds[thing.kind], colors[thing.color], states[thing.state])
            expected[3 + right, 6 - ahead] = code
        expected[3, 6] = image[3, 6]  # the player's own place
        assert (image == expected).all()
        world.move("left" if turn % 2 else "forward")


def test_levels_are_found_by_name_and_number():
    assert find_level(12) is find_level("Open") is find_level("BabyAI-Open")
    assert [level.number for level in LEVELS] == list(range(1, 41))
    for wanted in (0, 41, True, "Opne", None, "BabyAI-Open-v0"):
        with pytest.raises(ValueError, match=r"there is no level .* from 1 to 40"):
            find_level(wanted)
