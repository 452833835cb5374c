"""GiGPO: an episode against the attempts at its task, a turn against its like in one state."""

import numpy as np
import pytest

from agentgym_core.sequences import to_sequences
from agentgym_core.types import Ending, Episode, Group, Scores, Task, TokenSequence, Turn
from agentgym_grpo.gigpo import GiGPO
from agentgym_grpo.group_relative import GroupRelative


def sequence(turns, *, episode=0, group=0):
    """One token for each turn, given as (number, state, reward)."""
    numbers, states, rewards = zip(*turns, strict=True)
    num = len(turns)
    return TokenSequence(
        token_ids=np.zeros(num, np.int64),
        mask=np.ones(num, np.bool_),
        logprobs=np.zeros(num),
        rewards=np.array(rewards, np.float64),
        turns=np.array(numbers),
        versions=np.zeros(num, np.int64),
        states=np.array(states),
        episode=episode,
        group=group,
    )


def path(*turns, episode=0, group=0):
    """A whole episode, given as (state, reward) for each turn."""
    numbered = [(number, *turn) for number, turn in enumerate(turns)]
    return sequence(numbered, episode=episode, group=group)


def values_of(sequences, **options):
    options = {"scale": "none", **options}
    return [v.tolist() for v in GiGPO(**options)(sequences, Scores()).values]


def test_by_hand():
    # States 7 and 8; gamma 1/2. Episode 0 goes 7, 8 and earns 0, 4; episode 1 goes 7, 7 and earns
    # 0, 1; episode 2 goes 8, which nothing follows, and earns 0.
    # R = 4, 1, 0, mean 5/3.
    # G: episode 0: 2, 4; episode 1: 0.5, 1; episode 2: 0.
    # State 7: G = 2, 0.5, 1, mean 7/6: 5/6, -4/6, -1/6.  State 8: G = 4, 0, mean 2: 2, -2.
    sequences = [
        path((7, 0), (8, 4), episode=0),
        path((7, 0), (7, 1), episode=1),
        path((8, 0), episode=2),
    ]
    values = values_of(sequences, gamma=0.5, step_weight=2.0)
    assert values[0] == pytest.approx([7 / 3 + 10 / 6, 7 / 3 + 4], abs=1e-12)
    assert values[1] == pytest.approx([-2 / 3 - 8 / 6, -2 / 3 - 2 / 6], abs=1e-12)
    assert values[2] == pytest.approx([-5 / 3 - 4], abs=1e-12)


def test_a_state_is_divided_by_its_own_deviation():
    # G = 2, 0.5 and 1 in state 7: the mean of squares with n - 1 is (25 + 16 + 1)/36/2 = 7/12.
    sequences = [
        path((7, 0), (8, 4), episode=0),
        path((7, 0), (7, 1), episode=1),
        path((8, 0), episode=2),
    ]
    whole = GroupRelative(eps=0.0)(sequences, Scores()).values
    values = values_of(sequences, gamma=0.5, scale="std", eps=0.0)
    expected = whole[1][0] - 4 / 6 / (7 / 12) ** 0.5
    assert values[1][0] == pytest.approx(expected, abs=1e-12)


def test_without_a_step_weight_it_is_group_relative():
    sequences = [path((7, 1), (8, 4), episode=0), path((7, 1), episode=1)]
    whole = GroupRelative(scale="none")(sequences, Scores()).values
    assert values_of(sequences, step_weight=0.0) == [v.tolist() for v in whole]


def test_states_of_other_groups_and_lone_states_give_nothing():
    sequences = [
        path((7, 3), episode=0, group=0),
        path((7, 1), episode=1, group=1),
        path((8, 5), episode=2, group=1),
    ]
    result = GiGPO(scale="none")(sequences, Scores())
    assert [v.tolist() for v in result.values] == [[0], [-2], [2]]
    assert result.metrics == {"groups_without_signal": 0.5, "shared_states": 0.0}


def test_unknown_states_are_compared_with_nothing():
    sequences = [path((-1, 3), episode=0), path((-1, 1), episode=1)]
    result = GiGPO(scale="none")(sequences, Scores())
    assert [v.tolist() for v in result.values] == [[1], [-1]]
    assert result.metrics["shared_states"] == 0.0


def test_equal_returns_in_a_state_give_exactly_zero():
    # Both episodes reach state 8, where what is left to earn differs by rounding only.
    sequences = [path((7, 0), (8, 0.1 + 0.2), episode=0), path((6, 0), (8, 0.3), episode=1)]
    assert values_of(sequences, scale="std", eps=0.0) == [[0, 0], [0, 0]]


def test_equal_rewards_at_other_times_are_a_signal_of_turns():
    # Both earn 1; from state 7 the first is one turn away from it, the second two.
    sequences = [path((7, 1), episode=0), path((7, 0), (8, 1), episode=1)]
    result = GiGPO(scale="none", gamma=0.5)(sequences, Scores())
    assert [v.tolist() for v in result.values] == [[0.25], [-0.25, 0]]
    assert result.metrics == {"groups_without_signal": 1.0, "shared_states": 2 / 3}


def test_a_single_attempt_is_compared_with_itself_only():
    (values,) = values_of([path((7, 0), (7, 1))], gamma=0.5)
    # G = 0.5, 1 in one state: it came back to where it was.
    assert values == [-0.25, 0.25]


def test_several_sequences_of_an_episode_are_one_chain_of_turns():
    whole = [path((7, 1), (8, 2), (7, 4), episode=0), path((7, 0), (8, 1), episode=1)]
    cut = [
        sequence([(0, 7, 1), (2, 7, 4)], episode=0),
        sequence([(1, 8, 2)], episode=0),
        whole[1],
    ]
    first, second = values_of(whole, gamma=0.9)
    assert values_of(cut, gamma=0.9) == [[first[0], first[2]], [first[1]], second]


def test_every_token_of_a_turn_gets_it():
    def two_tokens(reward, episode):
        return TokenSequence(
            token_ids=np.zeros(4, np.int64),
            mask=np.array([False, True, True, False]),
            logprobs=np.zeros(4),
            rewards=np.array([0, 0, reward, 0.0]),
            turns=np.array([-1, 0, 0, -1]),
            versions=np.array([-1, 0, 0, -1]),
            states=np.array([-1, 0, 0, -1]),
            episode=episode,
            group=0,
        )

    values = values_of([two_tokens(1, 0), two_tokens(0, 1)])
    assert values == [[0, 1, 1, 0], [0, -1, -1, 0]]


def test_it_equals_the_plain_definition_on_random_groups():
    draw = np.random.default_rng(2)
    sequences = []
    for episode in range(12):
        turns = [(int(draw.integers(0, 3)), draw.normal()) for _ in range(draw.integers(1, 6))]
        sequences.append(path(*turns, episode=episode, group=episode // 4))
    gamma, omega = 0.8, 0.7
    whole = GroupRelative()(sequences, Scores()).values
    values = values_of(sequences, gamma=gamma, step_weight=omega, scale="std")

    def to_go(s, turn):
        return sum(gamma**k * r for k, r in enumerate(s.rewards[turn:]))

    for index, s in enumerate(sequences):
        for turn in range(len(s)):
            like = [
                to_go(o, t)
                for o in sequences
                for t in range(len(o))
                if (o.group, o.states[t]) == (s.group, s.states[turn])
            ]
            step = 0.0
            if len(like) > 1:
                step = (to_go(s, turn) - np.mean(like)) / (np.std(like, ddof=1) + 1e-6)
            expected = whole[index][turn] + omega * step
            assert values[index][turn] == pytest.approx(expected, abs=1e-10)


def turn(observation, *, sequence=0, trained=True, rounds=1, attempt=1):
    return Turn(
        sequence=sequence,
        prompt_ids=(1, 2),
        token_ids=(3, 4),
        logprobs=(-0.1, -0.1),
        finish_reason="stop",
        policy_version=0,
        text="",
        observation=observation,
        trained=trained,
        rounds=rounds,
        attempt=attempt,
    )


def states_of(*turns):
    episode = Episode(
        task=Task(id="room_1"),
        environment="room",
        sample=0,
        seed=0,
        max_rounds=9,
        turns=turns,
        messages=(),
        ending=Ending.OUT_OF_ROUNDS,
        success=False,
        final_ids=(8, 9),
    )
    group = Group(task=episode.task, environment="room", episodes=(episode,))
    return [s.states.tolist() for s in to_sequences([group])]


def test_the_state_of_a_turn_is_the_observation_before_it():
    (states,) = states_of(turn("A door."), turn("A room."), turn("A door."), turn("Done."))
    first, second, third, fourth = (states[at] for at in (2, 6, 10, 14))
    assert first == 0 < min(second, third)
    assert second == fourth != third
    # Both sampled tokens of a turn have it, what was read has none.
    assert states[:12] == [-1, -1, 0, 0, -1, -1, second, second, -1, -1, third, third]
    assert states[12:] == [-1, -1, fourth, fourth, -1, -1]


def test_a_turn_without_an_answer_is_in_the_state_of_the_next():
    # A plan at the start, and one after the first observation.
    (states,) = states_of(
        turn(None, rounds=0), turn("A door."), turn(None, rounds=0), turn("A room.")
    )
    assert states[2] == states[6] == 0
    assert states[10] == states[14] > 0


def test_states_go_by_turns_through_the_contexts():
    first, second = states_of(turn("A door."), turn("A room.", sequence=1), turn("End."))
    (plain,) = states_of(turn("A door."), turn("A room."), turn("End."))
    assert (first[2], second[2], first[6]) == (plain[2], plain[6], plain[10])


def test_every_attempt_begins_in_the_state_of_the_task():
    """The reflection between them is in the state of the turn after it."""
    (states,) = states_of(
        turn("A door."),
        turn("Lost."),
        turn(None, rounds=0, attempt=2),
        turn("A door.", attempt=2),
        turn("Won.", attempt=2),
    )
    first, second, reflection, again, last = (states[at] for at in (2, 6, 10, 14, 18))
    assert first == reflection == again == 0
    assert second == last > 0


@pytest.mark.parametrize("options", [{"gamma": 1.5}, {"gamma": -0.1}, {"step_weight": -1.0}])
def test_refused(options):
    (key,) = options
    with pytest.raises(ValueError, match=f"'{key}' must be"):
        GiGPO(**options)
