"""The core's own components hold to the suites."""

from agentgym_core.agents.act import Act
from agentgym_core.agents.plan_act import PlanAct
from agentgym_core.agents.react import React
from agentgym_core.agents.reflect import Reflect
from agentgym_core.curriculum import CurriculumTaskSampler
from agentgym_core.rewards import EnvironmentReward, FormatPenalty, RoundCost, SuccessReward
from agentgym_core.rounds import FixedRoundsScheduler
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.testing import (
    AgentConformance,
    RewardConformance,
    RoundSchedulerConformance,
    TaskSamplerConformance,
)


class TestAct(AgentConformance):
    agent = Act()


class TestReact(AgentConformance):
    agent = React()


class TestPlanAct(AgentConformance):
    agent = PlanAct()


class TestReflect(AgentConformance):
    agent = Reflect()


class TestDropping(AgentConformance):
    agent = React(context="drop")


class TestSummarising(AgentConformance):
    agent = React(context="summarise")


class TestFixed(RoundSchedulerConformance):
    scheduler = FixedRoundsScheduler(rounds=5)


class TestUniform(TaskSamplerConformance):
    sampler = UniformTaskSampler()


class TestCurriculum(TaskSamplerConformance):
    sampler = CurriculumTaskSampler()


class TestEnvironmentReward(RewardConformance):
    reward = EnvironmentReward()


class TestSuccessReward(RewardConformance):
    reward = SuccessReward()


class TestFormatPenalty(RewardConformance):
    reward = FormatPenalty()


class TestRoundCost(RewardConformance):
    reward = RoundCost()
