"""The forty levels, in AgentGym's order."""

import difflib
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class Level:
    """One of BabyAI's level generators."""

    number: int
    """1 to 40, as AgentGym counts them."""
    name: str
    """Minigrid's, without `BabyAI-` before and the version behind."""
    group: str
    """Evaluation reports success for each group."""


_GROUPS = {
    "GoTo": (
        "GoToRedBallGrey",
        "GoToRedBall",
        "GoToRedBallNoDists",
        "GoToObjS6",
        "GoToLocalS8N7",
        "GoToObjMazeS7",
        "GoToImpUnlock",
        "GoToSeqS5R2",
        "GoToRedBlueBall",
        "GoToDoor",
        "GoToObjDoor",
    ),
    "Open": (
        "Open",
        "OpenRedDoor",
        "OpenDoorLoc",
        "OpenRedBlueDoorsDebug",
        "OpenDoorsOrderN4Debug",
    ),
    "Pickup": ("Pickup", "UnblockPickup", "PickupLoc", "PickupDistDebug", "PickupAbove"),
    "PutNext": ("PutNextLocalS6N4", "PutNextS7N4Carrying"),
    "Unlock": (
        "Unlock",
        "UnlockLocalDist",
        "KeyInBox",
        "UnlockPickupDist",
        "BlockedUnlockPickup",
        "UnlockToUnlock",
    ),
    "ActionObjDoor": ("ActionObjDoor",),
    "FindObjS7": ("FindObjS7",),
    "KeyCorridor": ("KeyCorridorS6R3",),
    "OneRoomS20": ("OneRoomS20",),
    "MoveTwoAcross": ("MoveTwoAcrossS8N9",),
    "SynthS5R2": ("SynthS5R2",),
    "SynthLoc": ("SynthLoc",),
    "SynthSeq": ("SynthSeq",),
    "BossLevel": ("MiniBossLevel", "BossLevel", "BossLevelNoUnlock"),
}
_NAMES = [(name, group) for group, names in _GROUPS.items() for name in names]

LEVELS = tuple(Level(number, *names) for number, names in enumerate(_NAMES, start=1))
_BY_NAME: Mapping[str, Level] = {level.name: level for level in LEVELS}


def find_level(wanted: Any) -> Level:
    """The level of a name or number.

    Raises:
        ValueError: there is none of that name or number.
    """
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= len(LEVELS):
        return LEVELS[wanted - 1]
    name = wanted.removeprefix("BabyAI-") if isinstance(wanted, str) else ""
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    hint = f"Did you mean {near[0]}?" if near else "The README has the table."
    raise ValueError(
        f"there is no level {wanted!r}: give a number from 1 to {len(LEVELS)} or a name such as "
        f"GoToRedBall. {hint}"
    )
