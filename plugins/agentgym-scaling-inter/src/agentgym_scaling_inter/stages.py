"""What the schedules in stages ask of their stages."""

from collections.abc import Sequence


def check_stages(rounds: Sequence[int]) -> None:
    """Refuse stages that are none, or whose horizon falls.

    Raises:
        ValueError: names `rounds` and what would do.
    """
    stages = list(rounds)
    if not stages or min(stages) < 1:
        raise ValueError(
            f"rounds is {stages}; expected a horizon of at least 1 action for each stage, "
            "such as [10, 20, 30]"
        )
    if stages != sorted(stages):
        raise ValueError(
            f"rounds is {stages}, which falls; the horizon must grow from stage to stage: "
            f"{sorted(stages)} would do"
        )
