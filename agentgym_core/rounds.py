"""The round scheduler that is built in: the same horizon at every step."""

import attrs

from agentgym_core.protocols import RoundScheduler, State


@attrs.frozen(kw_only=True)
class FixedRoundsScheduler(RoundScheduler):
    """Every training episode may take the same number of rounds."""

    rounds: int = attrs.field(validator=attrs.validators.ge(1))
    """Actions."""

    def max_rounds(self, step: int, state: State) -> int:
        """The horizon, whatever the step."""
        return self.rounds
