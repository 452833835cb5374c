"""The core's own components, registered like any plugin's."""

from agentgym_core import hookimpl
from agentgym_core.hookspecs import Register


@hookimpl
def register_agents(register: Register) -> None:  # noqa: D103
    register("act", "agentgym_core.agents.act:Act")
    register("react", "agentgym_core.agents.react:React")


@hookimpl
def register_round_schedulers(register: Register) -> None:  # noqa: D103
    register("fixed", "agentgym_core.rounds:FixedRoundsScheduler")


@hookimpl
def register_task_samplers(register: Register) -> None:  # noqa: D103
    register("uniform", "agentgym_core.samplers:UniformTaskSampler")
