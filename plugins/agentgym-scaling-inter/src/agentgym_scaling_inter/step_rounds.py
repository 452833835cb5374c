"""ScalingInter-RL (AgentGym-RL, arXiv 2509.08755): the horizon of interaction grows in stages.

Short episodes come first, so that the policy learns to use what it can do; longer ones then let it
explore. Trained on the long horizon from the start, policies tend to collapse.
"""

import attrs

from agentgym_core.protocols import RoundScheduler, State
from agentgym_scaling_inter.stages import check_stages


@attrs.frozen(kw_only=True)
class StepRoundsScheduler(RoundScheduler):
    """Moves to the next entry of `rounds` every `steps_per_stage` training steps, then stays.

    Example: rounds (10, 20, 30) and steps_per_stage 100 give 10 at steps 0-99, 20 at steps
    100-199 and 30 from step 200 on.
    """

    rounds: tuple[int, ...] = attrs.field(converter=tuple)
    """Actions per episode in each stage, from 1 up and never falling. An entry that is repeated
    makes its stage longer."""
    steps_per_stage: int = attrs.field(validator=attrs.validators.ge(1))
    """Training steps."""

    def __attrs_post_init__(self) -> None:
        check_stages(self.rounds)

    def max_rounds(self, step: int, state: State) -> int:
        """The horizon of a step: a function of the step alone, so a resumed run needs no memory."""
        return self.rounds[min(step // self.steps_per_stage, len(self.rounds) - 1)]
