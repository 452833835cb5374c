from agentgym_core.testing import RoundSchedulerConformance
from agentgym_scaling_inter.adaptive_rounds import AdaptiveRoundsScheduler
from agentgym_scaling_inter.linear_rounds import LinearRoundsScheduler
from agentgym_scaling_inter.step_rounds import StepRoundsScheduler


class TestScalingInter(RoundSchedulerConformance):
    scheduler = StepRoundsScheduler(rounds=(10, 20, 30), steps_per_stage=100)


class TestScalingInterLinear(RoundSchedulerConformance):
    scheduler = LinearRoundsScheduler(start=10, end=30, num_steps=250)


class TestScalingInterAdaptive(RoundSchedulerConformance):
    scheduler = AdaptiveRoundsScheduler(rounds=(10, 20, 30), min_steps=120)
