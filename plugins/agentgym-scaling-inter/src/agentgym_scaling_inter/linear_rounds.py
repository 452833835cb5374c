"""A horizon that grows by one round at a time, evenly over the training steps."""

import attrs
from attrs.validators import ge

from agentgym_core.protocols import RoundScheduler, State


@attrs.frozen(kw_only=True)
class LinearRoundsScheduler(RoundScheduler):
    """From `start` rounds at step 0 to `end` at step `num_steps` in a straight line, then stays.

        rounds = start + floor((end - start) min(step, num_steps) / num_steps)

    in whole numbers, so nothing depends on how a machine rounds. `end` comes at step `num_steps`
    and no earlier.

    Example: start 4, end 8 and num_steps 10 give 4 4 4 5 5 6 6 6 7 7 8 8 …
    """

    start: int = attrs.field(validator=ge(1))
    """Actions per episode at step 0."""
    end: int
    """Actions per episode from step `num_steps` on; above `start`."""
    num_steps: int = attrs.field(validator=ge(1))
    """Training steps of growth."""

    def __attrs_post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError(
                f"end is {self.end}, not above start, which is {self.start}: the horizon grows. "
                f"Set end above {self.start}, or use `fixed`"
            )

    def max_rounds(self, step: int, state: State) -> int:
        """The horizon of a step: a function of the step alone, so a resumed run needs no memory."""
        grown = (self.end - self.start) * min(step, self.num_steps) // self.num_steps
        return self.start + grown
