"""Each suite finds the faults that it is there for."""

import itertools
import random

import attrs
import numpy as np
import pytest

from agentgym_core.agents.act import Act
from agentgym_core.on_policy import OnPolicy
from agentgym_core.protocols import AdvantageEstimator, Agent, RoundScheduler
from agentgym_core.testing import (
    AdvantageEstimatorConformance,
    AgentConformance,
    AlgorithmConformance,
    EnvironmentConformance,
    RoundSchedulerConformance,
)
from agentgym_core.testing.worlds import Countdown, CountdownSession
from agentgym_core.types import Advantages

COUNTER = itertools.count()


def failing(suite, component) -> set[str]:
    """The checks that do not pass."""
    found = type("Suite", (suite,), {suite.kind: component})()
    failed = set()
    for name in filter(lambda name: name.startswith("test_"), dir(suite)):
        try:
            getattr(found, name)()
        except pytest.skip.Exception:
            pass
        except Exception as error:
            if type(error).__name__ != "SkipTest":
                failed.add(name)
    return failed


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


BOARD = {"number": 0}


class SharedSession(CountdownSession):
    """All sessions count down the same number."""

    number = property(lambda self: BOARD["number"], lambda self, value: BOARD.update(number=value))


class DiceSession(CountdownSession):
    async def reset(self, task, seed):
        observation = await super().reset(task, seed)
        return attrs.evolve(observation, messages=f"{observation.text} {next(COUNTER)}")


class DeafSession(CountdownSession):
    async def step(self, action):
        if not action.isascii():
            raise ValueError("what?")
        return await super().step(action)


class NaNSession(CountdownSession):
    async def step(self, action):
        return attrs.evolve(await super().step(action), reward=float("nan"))


@attrs.frozen(kw_only=True)
class World(Countdown):
    session: type = CountdownSession

    async def open(self):
        return self.session(self.fault)


@attrs.frozen(kw_only=True)
class SameIds(Countdown):
    def tasks(self, split):
        return [attrs.evolve(task, id="countdown_1") for task in super().tasks(split)]


@attrs.frozen(kw_only=True)
class NeverActs(Agent):
    async def play(self, task, session, handler):
        await session.reset()


@attrs.frozen(kw_only=True)
class Blind(Act):
    """Does not show the policy what the world says."""

    async def play(self, task, session, handler):
        await session.reset()
        handler.add("Go on.")
        while not session.ended:
            await session.act(await handler.reply())
            handler.add("Go on.")


@attrs.frozen(kw_only=True)
class GivesUpOnNonsense(Act):
    async def play(self, task, session, handler):
        handler.add(await session.reset())
        while not session.ended:
            reply = await handler.reply()
            action = reply.text.split("Action: ")[1]
            handler.add(await session.act(reply, action))


@pytest.mark.parametrize(
    ("suite", "component", "check"),
    [
        (AdvantageEstimatorConformance, RewardsMaskedTokens(), "test_zero_where_the_mask_is"),
        (AdvantageEstimatorConformance, CountsObservations(), "test_observations_do_not_matter"),
        (AdvantageEstimatorConformance, ShiftsTheReward(), "test_a_reward_reaches_the_policy"),
        (AdvantageEstimatorConformance, Forgetful(), "test_a_pure_function"),
        (RoundSchedulerConformance, Hidden(), "test_max_rounds_is_a_pure_function"),
        (RoundSchedulerConformance, Fraction(), "test_horizons_are_positive_whole_numbers"),
        (RoundSchedulerConformance, StateOfSets(), "test_state_is_json"),
        (RoundSchedulerConformance, Overwrites(), "test_next_state_leaves_the_old_one_alone"),
        (AlgorithmConformance, LearnsObservations(), "test_masked_tokens_have_no_gradient"),
        (
            AlgorithmConformance,
            NormalisesItself(),
            "test_gradient_does_not_depend_on_the_micro_batch",
        ),
        (AlgorithmConformance, Explodes(), "test_loss_is_finite_on_extreme_ratios"),
        (AlgorithmConformance, Sums(), "test_loss_has_a_value_for_each_token"),
        (
            EnvironmentConformance,
            World(session=SharedSession),
            "test_sessions_do_not_see_each_other",
        ),
        (
            EnvironmentConformance,
            World(session=DiceSession),
            "test_same_task_and_seed_give_the_same_episode",
        ),
        (EnvironmentConformance, World(session=DeafSession), "test_any_text_is_an_action"),
        (
            EnvironmentConformance,
            World(session=NaNSession),
            "test_rewards_are_finite_and_endings_make_sense",
        ),
        (EnvironmentConformance, World(), "test_step_after_the_end_raises"),
        (EnvironmentConformance, SameIds(), "test_task_ids_are_unique"),
        (AgentConformance, NeverActs(), "test_shows_the_world_to_the_policy"),
        (AgentConformance, Blind(), "test_shows_the_world_to_the_policy"),
        (AgentConformance, GivesUpOnNonsense(), "test_survives_what_a_policy_says"),
    ],
    ids=lambda value: type(value).__name__ if attrs.has(type(value)) else None,
)
def test_a_planted_fault_is_found(suite, component, check):
    assert check in failing(suite, component)


@pytest.mark.parametrize(
    ("suite", "component"),
    [
        (AdvantageEstimatorConformance, Mean()),
        (RoundSchedulerConformance, Fixed()),
        (AlgorithmConformance, Sound()),
        (AgentConformance, Act()),
    ],
)
def test_a_sound_one_passes(suite, component):
    assert failing(suite, component) == set()
