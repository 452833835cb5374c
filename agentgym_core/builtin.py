"""The core's own components, registered like any plugin's."""

from agentgym_core import hookimpl
from agentgym_core.commands import COMMANDS
from agentgym_core.hookspecs import Register


@hookimpl
def register_agents(register: Register) -> None:  # noqa: D103
    register("act", "agentgym_core.agents.act:Act")
    register("plan-act", "agentgym_core.agents.plan_act:PlanAct")
    register("react", "agentgym_core.agents.react:React")
    register("reflect", "agentgym_core.agents.reflect:Reflect")


@hookimpl
def register_round_schedulers(register: Register) -> None:  # noqa: D103
    register("fixed", "agentgym_core.rounds:FixedRoundsScheduler")


@hookimpl
def register_task_samplers(register: Register) -> None:  # noqa: D103
    register("uniform", "agentgym_core.samplers:UniformTaskSampler")
    register("from-file", "agentgym_core.task_files:FileTaskSampler")
    register("curriculum", "agentgym_core.curriculum:CurriculumTaskSampler")


@hookimpl
def register_rewards(register: Register) -> None:  # noqa: D103
    register("environment", "agentgym_core.rewards:EnvironmentReward")
    register("success", "agentgym_core.rewards:SuccessReward")
    register("format-penalty", "agentgym_core.rewards:FormatPenalty")
    register("round-cost", "agentgym_core.rewards:RoundCost")


@hookimpl
def register_trackers(register: Register) -> None:  # noqa: D103
    register("tensorboard", "agentgym_core.trackers.tensorboard:TensorBoardTracker")
    register("wandb", "agentgym_core.trackers.wandb:WandbTracker")


@hookimpl
def register_commands(register: Register) -> None:  # noqa: D103
    for name, (import_string, _) in COMMANDS.items():
        register(name, import_string)
