"""Suites of what computes find the faults that they are there for."""

import itertools
import random

import attrs
import numpy as np
import pytest

from agentgym_core.on_policy import OnPolicy
from agentgym_core.protocols import AdvantageEstimator, EpisodeReward, Reward, RoundScheduler
from agentgym_core.rewards import EnvironmentReward
from agentgym_core.samplers import UniformTaskSampler
from agentgym_core.testing import (
    AdvantageEstimatorConformance,
    AlgorithmConformance,
    RewardConformance,
    RoundSchedulerConformance,
    TaskSamplerConformance,
)
from agentgym_core.types import Advantages

from .conftest import class_name, outcome

COUNTER = itertools.count()


@attrs.frozen(kw_only=True)
class Mean(AdvantageEstimator):
    """A sound one: the episode's reward on each of its trained tokens."""

    def __call__(self, sequences, scores):
        total = {}
        for s in sequences:
            total[s.episode] = total.get(s.episode, 0.0) + s.rewards[s.mask].sum()
        return Advantages(values=tuple(s.mask * total[s.episode] for s in sequences))


@attrs.frozen(kw_only=True)
class RewardsMaskedTokens(Mean):
    def __call__(self, sequences, scores):
        return Advantages(values=tuple(np.full(len(s), s.rewards.sum()) for s in sequences))


@attrs.frozen(kw_only=True)
class CountsObservations(Mean):
    """Discounts over all tokens, those of the world included."""

    def __call__(self, sequences, scores):
        def value(s):
            left = np.arange(len(s))[::-1]
            return s.mask * s.rewards.sum() * 0.9**left

        return Advantages(values=tuple(map(value, sequences)))


@attrs.frozen(kw_only=True)
class ShiftsTheReward(Mean):
    """Reads the reward from where it is not: the token after the last one."""

    def __call__(self, sequences, scores):
        shifted = (np.where(s.mask, 0.0, s.rewards).sum() for s in sequences)
        return Advantages(values=tuple(s.mask * r for s, r in zip(sequences, shifted, strict=True)))


@attrs.frozen(kw_only=True)
class Forgetful(Mean):
    def __call__(self, sequences, scores):
        noise = random.random() + next(COUNTER)
        return Advantages(values=tuple(s.mask * (noise + s.rewards.sum()) for s in sequences))


@attrs.frozen(kw_only=True)
class Fixed(RoundScheduler):
    def max_rounds(self, step, state):
        return 5


@attrs.frozen(kw_only=True)
class Hidden(Fixed):
    def max_rounds(self, step, state):
        return 1 + next(COUNTER)


@attrs.frozen(kw_only=True)
class Fraction(Fixed):
    def max_rounds(self, step, state):
        return 1 + step / 10


@attrs.frozen(kw_only=True)
class StateOfSets(Fixed):
    def initial_state(self):
        return {1, 2}


@attrs.frozen(kw_only=True)
class Overwrites(Fixed):
    def initial_state(self):
        return {"steps": 0}

    def next_state(self, state, report):
        state["steps"] += 1
        return state


@attrs.frozen(kw_only=True)
class RemembersReports(Fixed):
    """Raises the horizon by what it was told, which no checkpoint holds."""

    told: list = attrs.field(factory=list)

    def max_rounds(self, step, state):
        return 1 + len(self.told)

    def next_state(self, state, report):
        self.told.append(report.step)
        return state


@attrs.frozen(kw_only=True)
class Sound(OnPolicy):
    def loss(self, tokens):
        return -(tokens.logprobs_NT * tokens.advantages_NT) * tokens.mask_NT, {}


@attrs.frozen(kw_only=True)
class LearnsObservations(Sound):
    """Wipes the mask out with what is spread over all tokens."""

    def loss(self, tokens):
        loss_NT, metrics = super().loss(tokens)
        everything = (tokens.logprobs_NT.sum() / tokens.mask_NT.sum()) * tokens.mask_NT
        return loss_NT + everything, metrics


@attrs.frozen(kw_only=True)
class NormalisesItself(Sound):
    """Divides by what happens to be in the micro-batch."""

    def loss(self, tokens):
        loss_NT, metrics = super().loss(tokens)
        return loss_NT / tokens.mask_NT.sum(), metrics


@attrs.frozen(kw_only=True)
class Explodes(Sound):
    def loss(self, tokens):
        ratio = (100 * (tokens.logprobs_NT - tokens.old_logprobs_NT)).exp()
        return -(ratio * ratio * tokens.advantages_NT) * tokens.mask_NT, {}


@attrs.frozen(kw_only=True)
class Sums(Sound):
    def loss(self, tokens):
        return super().loss(tokens)[0].sum(), {}


@attrs.frozen(kw_only=True)
class OrderMatters(Mean):
    def __call__(self, sequences, scores):
        values = super().__call__(sequences, scores).values
        return Advantages(values=tuple(v * (n + 1) for n, v in enumerate(values)))


@attrs.frozen(kw_only=True)
class OverRows(Mean):
    """Group statistics over sequences in place of episodes."""

    compares_groups = True

    def __call__(self, sequences, scores):
        values = super().__call__(sequences, scores).values
        rewards = [v.max() for v in values]
        return Advantages(
            values=tuple(
                s.mask * (r - np.mean(rewards)) for s, r in zip(sequences, rewards, strict=True)
            )
        )


@attrs.frozen(kw_only=True)
class NoiseOverStd(Mean):
    compares_groups = True

    def __call__(self, sequences, scores):
        rewards = np.array([s.rewards.sum() for s in sequences])
        with np.errstate(all="ignore"):
            z = (rewards - rewards.mean()) / rewards.std()
        return Advantages(values=tuple(s.mask * a for s, a in zip(sequences, z, strict=True)))


@attrs.frozen(kw_only=True)
class StartsAgainInEachContext(Mean):
    """What is still to be earned in the sequence, and not in the episode."""

    def __call__(self, sequences, scores):
        return Advantages(values=tuple(s.mask * s.rewards[::-1].cumsum()[::-1] for s in sequences))


@attrs.frozen(kw_only=True)
class WrongNeed(Mean):
    needs = frozenset({"entropy"})


@attrs.frozen(kw_only=True)
class HiddenStep(Sound):
    def learn(self, run, step, sequences):
        found = tuple(attrs.evolve(s, rewards=s.rewards + next(COUNTER)) for s in sequences)
        return super().learn(run, step, found)


@attrs.frozen(kw_only=True)
class OneShort(UniformTaskSampler):
    def select(self, pools, num_tasks, *, step, seed, state):
        return super().select(pools, num_tasks, step=step, seed=seed, state=state)[1:]


@attrs.frozen(kw_only=True)
class StateOfASet(UniformTaskSampler):
    def initial_state(self):
        return {1}


@attrs.frozen(kw_only=True)
class MutatesState(UniformTaskSampler):
    def initial_state(self):
        return {"n": 0}

    def next_state(self, state, report):
        state["n"] += 1
        return state


@attrs.frozen(kw_only=True)
class NaNReward(Reward):
    def __call__(self, episode):
        return EpisodeReward(turns=(float("nan"),) * len(episode.turns))


@attrs.frozen(kw_only=True)
class OneForAll(Reward):
    def __call__(self, episode):
        return EpisodeReward(turns=(1.0,))


@attrs.frozen(kw_only=True)
class Drifting(Reward):
    def __call__(self, episode):
        return EpisodeReward(turns=(float(next(COUNTER)),) * len(episode.turns))


@attrs.frozen(kw_only=True)
class ReportsTheNextStep(Sound):
    async def train_step(self, run, step):
        return attrs.evolve(await super().train_step(run, step), step=step + 1)


@attrs.frozen(kw_only=True)
class DrawsAnew(UniformTaskSampler):
    def select(self, pools, num_tasks, *, step, seed, state):
        return super().select(pools, num_tasks, step=step, seed=next(COUNTER), state=state)


@attrs.frozen(kw_only=True)
class CountsInMemory(UniformTaskSampler):
    """What it has been told lies outside its state, so a resume forgets it."""

    told: list = attrs.field(factory=list)

    def select(self, pools, num_tasks, *, step, seed, state):
        return super().select(pools, num_tasks, step=len(self.told), seed=seed, state=state)

    def next_state(self, state, report):
        self.told.append(report.step)
        return state


@pytest.mark.parametrize(
    ("suite", "component", "check"),
    [
        (AdvantageEstimatorConformance, RewardsMaskedTokens(), "test_zero_where_the_mask_is"),
        (AdvantageEstimatorConformance, CountsObservations(), "test_observations_do_not_matter"),
        (AdvantageEstimatorConformance, ShiftsTheReward(), "test_a_reward_reaches_the_policy"),
        (AdvantageEstimatorConformance, Forgetful(), "test_a_pure_function"),
        (
            AdvantageEstimatorConformance,
            OrderMatters(),
            "test_the_order_of_the_sequences_does_not_matter",
        ),
        (AdvantageEstimatorConformance, NoiseOverStd(), "test_one_finite_value_for_each_token"),
        (AdvantageEstimatorConformance, NoiseOverStd(), "test_a_group_of_one_is_defined"),
        (
            AdvantageEstimatorConformance,
            StartsAgainInEachContext(),
            "test_contexts_do_not_matter",
        ),
        (AdvantageEstimatorConformance, WrongNeed(), "test_needs_are_known"),
        (AdvantageEstimatorConformance, OverRows(), "test_an_episode_counts_once"),
        (AdvantageEstimatorConformance, NoiseOverStd(), "test_equal_rewards_give_nothing"),
        (RoundSchedulerConformance, Hidden(), "test_max_rounds_is_a_pure_function"),
        (RoundSchedulerConformance, Fraction(), "test_horizons_are_positive_whole_numbers"),
        (RoundSchedulerConformance, StateOfSets(), "test_state_is_json"),
        (RoundSchedulerConformance, Overwrites(), "test_next_state_leaves_the_old_one_alone"),
        (RoundSchedulerConformance, RemembersReports(), "test_goes_on_from_a_saved_state"),
        (AlgorithmConformance, LearnsObservations(), "test_masked_tokens_have_no_gradient"),
        (
            AlgorithmConformance,
            NormalisesItself(),
            "test_gradient_does_not_depend_on_the_micro_batch",
        ),
        (AlgorithmConformance, Explodes(), "test_loss_is_finite_on_extreme_ratios"),
        (AlgorithmConformance, Sums(), "test_loss_has_a_value_for_each_token"),
        (AlgorithmConformance, HiddenStep(), "test_steps_leave_nothing_behind"),
        (AlgorithmConformance, ReportsTheNextStep(), "test_a_step_learns_and_publishes"),
        (TaskSamplerConformance, DrawsAnew(), "test_select_is_a_pure_function"),
        (TaskSamplerConformance, CountsInMemory(), "test_select_is_a_pure_function"),
        (TaskSamplerConformance, CountsInMemory(), "test_goes_on_from_a_saved_state"),
        (TaskSamplerConformance, OneShort(), "test_gives_as_many_tasks_as_asked_for"),
        (TaskSamplerConformance, StateOfASet(), "test_state_is_json"),
        (TaskSamplerConformance, MutatesState(), "test_next_state_leaves_the_old_one_alone"),
        (RewardConformance, NaNReward(), "test_one_finite_reward_for_each_turn"),
        (RewardConformance, OneForAll(), "test_one_finite_reward_for_each_turn"),
        (RewardConformance, Drifting(), "test_a_pure_function"),
    ],
    ids=class_name,
)
def test_a_planted_fault_is_found(suite, component, check):
    assert outcome(suite, component, check) == ({check}, set())


@pytest.mark.parametrize(
    ("suite", "component", "skipped"),
    [
        (
            AdvantageEstimatorConformance,
            Mean(),
            {"test_an_episode_counts_once", "test_equal_rewards_give_nothing"},
        ),
        (RoundSchedulerConformance, Fixed(), set()),
        (AlgorithmConformance, Sound(), set()),
        (TaskSamplerConformance, UniformTaskSampler(), set()),
        (RewardConformance, EnvironmentReward(), set()),
    ],
    ids=class_name,
)
def test_a_sound_one_passes(suite, component, skipped):
    failed, found = outcome(suite, component)
    assert failed == set()
    # A class of this test is in no plugin whose module could be heavy.
    assert found - {"test_plugin_module_is_light"} == skipped
