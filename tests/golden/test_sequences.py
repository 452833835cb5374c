import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_core.sequences import to_sequences
from agentgym_core.types import Ending, Episode, Group, Task, Turn


def turn(prompt_ids, token_ids, *, sequence=0, reward=0.0, trained=True, version=0):
    return Turn(
        sequence=sequence,
        prompt_ids=tuple(prompt_ids),
        token_ids=tuple(token_ids),
        logprobs=tuple(-0.1 * token for token in token_ids),
        finish_reason="stop",
        policy_version=version,
        text="",
        trained=trained,
        reward=reward,
    )


def episode(*turns, ending=Ending.DONE, final_ids=()):
    return Episode(
        task=Task(id="room_1"),
        environment="room",
        sample=0,
        seed=0,
        max_rounds=9,
        turns=turns,
        messages=(),
        ending=ending,
        success=False,
        final_ids=final_ids,
    )


def group(*episodes):
    return Group(task=Task(id="room_1"), environment="room", episodes=episodes)


def rewards_of(*turns):
    return [s.rewards.tolist() for s in to_sequences([group(episode(*turns))])]


def test_two_turns_by_hand():
    played = episode(
        turn([1, 5, 6], [7, 2], reward=0.25, version=3),
        turn([8, 9, 4], [7, 2], reward=1.0, version=4),
    )
    (sequence,) = to_sequences([group(played)])
    assert sequence.token_ids.tolist() == [1, 5, 6, 7, 2, 8, 9, 4, 7, 2]
    assert sequence.mask.tolist() == [bit == "1" for bit in "0001100011"]
    assert sequence.logprobs.tolist() == pytest.approx([0, 0, 0, -0.7, -0.2, 0, 0, 0, -0.7, -0.2])
    assert sequence.rewards.tolist() == [0, 0, 0, 0, 0.25, 0, 0, 0, 0, 1.0]
    assert sequence.turns.tolist() == [-1, -1, -1, 0, 0, -1, -1, -1, 1, 1]
    assert sequence.versions.tolist() == [-1, -1, -1, 3, 3, -1, -1, -1, 4, 4]
    assert (sequence.episode, sequence.group, sequence.truncated) == (0, 0, False)


def test_a_fresh_context_is_a_sequence_of_its_own():
    played = episode(
        turn([1], [2], sequence=0, reward=1.0),
        turn([1, 2, 3], [4], sequence=1, reward=2.0),
        turn([5], [6], sequence=0, reward=4.0),
    )
    first, second = to_sequences([group(played)])
    assert first.token_ids.tolist() == [1, 2, 5, 6]
    assert first.turns.tolist() == [-1, 0, -1, 2]
    assert first.rewards.tolist() == [0, 1, 0, 4]
    assert second.token_ids.tolist() == [1, 2, 3, 4]
    assert second.turns.tolist() == [-1, -1, -1, 1]
    assert first.episode == second.episode == 0


def test_what_would_have_been_read_next_ends_the_last_context():
    """It is prompt: in no mask, no turn, no state and without a reward."""
    played = episode(
        turn([1], [2, 3], sequence=0, reward=1.0),
        turn([4], [5], sequence=1, reward=2.0),
        ending=Ending.OUT_OF_ROUNDS,
        final_ids=(8, 9),
    )
    first, last = to_sequences([group(played)])
    assert first.token_ids.tolist() == [1, 2, 3]
    assert last.token_ids.tolist() == [4, 5, 8, 9]
    assert last.mask.tolist() == [False, True, False, False]
    assert last.rewards.tolist() == [0, 2, 0, 0]
    assert last.turns.tolist() == [-1, 1, -1, -1]
    assert last.versions.tolist() == [-1, 0, -1, -1]
    assert last.logprobs.tolist() == pytest.approx([0, -0.5, 0, 0])
    assert last.states.tolist()[2:] == [-1, -1]
    assert first.truncated
    assert last.truncated


def test_what_would_have_been_read_next_follows_the_last_turn_and_no_other():
    """A context that the last turn left for another one stays as it is."""
    played = episode(
        turn([1], [2], sequence=0),
        turn([4], [5], sequence=1),
        turn([6], [7], sequence=0),
        ending=Ending.OUT_OF_TOKENS,
        final_ids=(8,),
    )
    first, second = to_sequences([group(played)])
    assert first.token_ids.tolist() == [1, 2, 6, 7, 8]
    assert second.token_ids.tolist() == [4, 5]


def test_numbers_run_over_the_whole_batch():
    one = episode(turn([1], [2]))
    cut = episode(turn([1], [2]), turn([3], [4], sequence=1), ending=Ending.OUT_OF_ROUNDS)
    sequences = to_sequences([group(one, cut), group(), group(one)])
    assert [s.episode for s in sequences] == [0, 1, 1, 2]
    assert [s.group for s in sequences] == [0, 0, 0, 2]
    assert [s.truncated for s in sequences] == [False, True, True, False]


def test_rewards_of_untrained_turns_move_to_the_trained_token_before():
    # The second reply is not trained; its 2.0 goes back to the end of the first.
    rewards = rewards_of(
        turn([1], [2, 3], reward=1.0),
        turn([4], [5, 6], reward=2.0, trained=False),
        turn([7], [8], reward=4.0),
    )
    assert rewards == [[0, 0, 3.0, 0, 0, 0, 0, 4.0]]


def test_rewards_before_any_trained_turn_move_to_its_end():
    rewards = rewards_of(turn([1], [2], reward=1.0, trained=False), turn([3], [4, 5], reward=2.0))
    assert rewards == [[0, 0, 0, 0, 3.0]]


def test_rewards_move_across_contexts():
    rewards = rewards_of(
        turn([1], [2], reward=1.0), turn([3], [4], sequence=1, reward=2.0, trained=False)
    )
    assert rewards == [[0, 3.0], [0, 0]]


def test_without_trained_turns_rewards_stay():
    (sequence,) = to_sequences([group(episode(turn([1], [2, 3], reward=1.0, trained=False)))])
    assert sequence.rewards.tolist() == [0, 0, 1.0]
    assert not sequence.mask.any()
    assert sequence.turns.tolist() == [-1, 0, 0]


def test_a_context_without_a_reply_is_no_sequence():
    assert to_sequences([group(episode())]) == ()
    assert to_sequences([]) == ()
    sequences = to_sequences(
        [group(episode(turn([1], [2]), turn([3, 4], [], sequence=1, reward=5.0)))]
    )
    assert [s.rewards.tolist() for s in sequences] == [[0, 5.0]]


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending.is_failure])
def test_failed_episodes_are_refused(ending):
    with pytest.raises(AssertionError, match="room_1"):
        to_sequences([group(episode(turn([1], [2]), ending=ending))])


turns = st.builds(
    turn,
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    sequence=st.integers(0, 2),
    reward=st.integers(-4, 4).map(float),
    trained=st.booleans(),
    version=st.integers(0, 3),
)
endings = st.sampled_from([ending for ending in Ending if not ending.is_failure])
episodes = st.builds(
    lambda turns, ending: episode(*turns, ending=ending), st.lists(turns, max_size=5), endings
)
groups = st.lists(st.builds(lambda some: group(*some), st.lists(episodes, max_size=3)), max_size=3)


@settings(max_examples=200, deadline=None)
@given(groups)
def test_nothing_is_lost_and_everything_is_aligned(groups):
    sequences = to_sequences(groups)
    for sequence in sequences:
        fields = ("mask", "logprobs", "rewards", "turns", "versions")
        assert {len(getattr(sequence, field)) for field in fields} == {len(sequence)}
        assert not sequence.mask[sequence.turns == -1].any()
        assert not sequence.logprobs[sequence.turns == -1].any()

    played = [(number, e) for number, g in enumerate(groups) for e in g.episodes]
    for episode_number, (group_number, e) in enumerate(played):
        own = [s for s in sequences if s.episode == episode_number]
        assert {s.group for s in own} <= {group_number}
        assert {s.truncated for s in own} <= {e.ending.is_truncation}
        # Every sampled id is there, under its turn and with its log-probability.
        for index, spoken in enumerate(e.turns):
            ids = np.concatenate([s.token_ids[s.turns == index] for s in own])
            logprobs = np.concatenate([s.logprobs[s.turns == index] for s in own])
            trained = np.concatenate([s.mask[s.turns == index] for s in own])
            assert tuple(ids) == spoken.token_ids
            assert tuple(logprobs) == spoken.logprobs
            assert set(trained) == {spoken.trained}
        # No reward is lost; where anything is trained, all of it lies on trained tokens.
        total = sum(float(s.rewards.sum()) for s in own)
        assert total == e.reward
        if any(s.mask.any() for s in own):
            assert sum(float(s.rewards[s.mask].sum()) for s in own) == e.reward


def test_contexts_are_in_the_order_of_their_numbers():
    # The second context speaks first.
    first, second = to_sequences([group(episode(turn([1], [7], sequence=1), turn([2], [8])))])
    assert first.token_ids.tolist() == [2, 8]
    assert second.token_ids.tolist() == [1, 7]
    assert (first.task, second.task) == ("room_1", "room_1")


def test_a_context_with_one_reply_is_a_sequence():
    (sequence,) = to_sequences([group(episode(turn([1], []), turn([2], [8])))])
    assert sequence.token_ids.tolist() == [1, 2, 8]
