"""One class for each cause, each also its standard-library sibling.

Plugin authors raise plain Python errors; the core attributes them to the component they came from.
"""

import signal


class AgentGymError(Exception):
    """Root of every error that this project raises on purpose."""


class ConfigError(AgentGymError, ValueError):
    """A value in the YAML or on the command line is wrong; the message names its path."""


class ComponentNotFoundError(AgentGymError, LookupError):
    """No component of that kind is registered under that name."""


class PluginError(AgentGymError, RuntimeError):
    """An installed plugin breaks the contract; the message names its package."""


class ComponentError(AgentGymError, RuntimeError):
    """A component raised, or returned what its protocol does not allow; names its package."""


class TemplateError(AgentGymError, ValueError):
    """The model's chat template cannot carry a conversation of this shape."""


class FormatError(AgentGymError, ValueError):
    """A reply names no action, or more than one. The message is shown to the policy."""


class EpisodeEnded(AgentGymError, RuntimeError):
    """The agent went on after the end of its episode. `play_episode` catches it."""


class EpisodeFailure(AgentGymError, RuntimeError):
    """Something other than the policy failed. A failed episode is never a reward."""


class EnvironmentFailure(EpisodeFailure):
    """The environment raised, hung, died or answered something else than it should."""


class EngineFailure(EpisodeFailure):
    """The engine raised instead of completing."""


class InvalidReward(EpisodeFailure):
    """The environment returned a reward that is NaN or infinite."""


class TooManyFailures(AgentGymError, RuntimeError):
    """More episodes failed than `training.max_failed_fraction` allows."""


class NumericalError(AgentGymError, FloatingPointError):
    """A loss or gradient is NaN or infinite; the weights are what they were before the step."""


class Stalled(AgentGymError, TimeoutError):
    """Nothing made progress for `training.stall_seconds`; the message says what was waited for."""


class CheckpointError(AgentGymError, OSError):
    """A run directory or checkpoint cannot be read or written."""


class RankError(AgentGymError, ConnectionError):
    """Another process of the same run is gone, failed, or was started with something else."""


class RunLockedError(AgentGymError, RuntimeError):
    """Another process works on the run directory."""


class Interrupted(AgentGymError):
    """The run was stopped from outside, after it saved its state."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal = number
        """What stopped it."""
