"""The plugin contract: every hook a plugin may implement.

A plugin is a light module, named by an entry point of the group `agentgym`. Its hooks only
register: a kebab-case name and the import string of a component class. Nothing heavy is imported
until the name is used.

    from agentgym_core import hookimpl

    @hookimpl
    def register_environments(register):
        register("guess-number", "agentgym_guess_number.environment:GuessNumber")

Arguments of hooks are only ever added, never removed or renamed.
"""

from collections.abc import Callable

import pluggy

Register = Callable[[str, str], None]
"""`register(name, "package.module:Class")`"""

hookspec = pluggy.HookspecMarker("agentgym")
hookimpl = pluggy.HookimplMarker("agentgym")


@hookspec
def register_environments(register: Register) -> None:
    """Worlds: classes that satisfy `agentgym_core.protocols.Environment`."""


@hookspec
def register_agents(register: Register) -> None:
    """Conversations with a world: classes that satisfy `protocols.Agent`."""


@hookspec
def register_algorithms(register: Register) -> None:
    """Ways to learn from episodes or demonstrations: `protocols.Algorithm`."""


@hookspec
def register_advantage_estimators(register: Register) -> None:
    """Credit for every generated token: `protocols.AdvantageEstimator`."""


@hookspec
def register_round_schedulers(register: Register) -> None:
    """The training horizon as a function of the step: `protocols.RoundScheduler`."""


@hookspec
def register_task_samplers(register: Register) -> None:
    """Which tasks a training step plays: `protocols.TaskSampler`."""


@hookspec
def register_rewards(register: Register) -> None:
    """What a run makes of a finished episode: `protocols.Reward`."""


@hookspec
def register_engines(register: Register) -> None:
    """Where tokens are sampled: `protocols.Engine`."""


@hookspec
def register_backends(register: Register) -> None:
    """Where the policy is trained: `protocols.Backend`."""


@hookspec
def register_trackers(register: Register) -> None:
    """Where metrics go beside `metrics.jsonl`: `protocols.Tracker`."""


@hookspec
def register_commands(register: Register) -> None:
    """Subcommands of `agentgym`: a click command each, such as `agentgym_viewer.cli:view`."""
