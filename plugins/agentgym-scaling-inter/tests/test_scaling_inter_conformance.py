from agentgym_core.testing import RoundSchedulerConformance
from agentgym_scaling_inter.step_rounds import StepRoundsScheduler


class TestScalingInter(RoundSchedulerConformance):
    scheduler = StepRoundsScheduler(rounds=(10, 20, 30), steps_per_stage=100)
