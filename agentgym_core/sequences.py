"""From episodes to the token sequences that training sees: exactly what the engine saw."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym_core.seeds import derive_seed
from agentgym_core.types import Episode, Group, TokenSequence, Turn

_Number = TypeVar("_Number", bound=np.generic)
_Columns = Mapping[str, Sequence[float]]
"""The fields of a token sequence, a value for each of some tokens that follow one another."""


def to_sequences(groups: Sequence[Group]) -> tuple[TokenSequence, ...]:
    """Join the turns of each context of each episode, in order.

    Groups and episodes are numbered over the whole batch, in the order given. What follows the last
    reply of a context is not part of it, unless the episode was cut there: the last context of such
    an episode ends with its `final_ids`, so that a critic can value where it was cut. A context in
    which the policy never spoke gives no sequence: there is nothing to learn from.

    The reward of a turn lies on its last generated token, which is what the policy did to earn it.
    If that turn is not trained, its reward moves to the last trained token before it in the episode
    (or, if none is, to the end of the first trained turn after it): credit flows backwards along
    trained tokens alone, so elsewhere it would be lost to every estimator but a plain sum. An
    episode without any trained turn keeps its rewards where they were earned.

    Args:
        groups: episodes that did not fail; failed ones are dropped before.
    """
    sequences: list[TokenSequence] = []
    episode_number = 0
    for group_number, group in enumerate(groups):
        for episode in group.episodes:
            sequences.extend(_contexts(episode, episode_number, group_number))
            episode_number += 1
    return tuple(sequences)


def _contexts(episode: Episode, episode_number: int, group_number: int) -> list[TokenSequence]:
    """The sequences of one episode, by their index."""
    assert not episode.ending.is_failure, f"a failed episode of {episode.task.id} in training"
    rewards = _place_rewards(episode.turns)
    states = _states(episode.turns)
    contexts: dict[int, list[int]] = {}
    for index, turn in enumerate(episode.turns):
        contexts.setdefault(turn.sequence, []).append(index)
    return [
        _join(episode, contexts[context], rewards, states, episode_number, group_number)
        for context in sorted(contexts)
        if any(episode.turns[index].token_ids for index in contexts[context])
    ]


def _place_rewards(turns: Sequence[Turn]) -> list[float]:
    """For each turn, the reward that lies on its last generated token."""
    spoken = [index for index, turn in enumerate(turns) if turn.token_ids]
    homes = [index for index in spoken if turns[index].trained] or spoken
    rewards = [0.0] * len(turns)
    for index, turn in enumerate(turns):
        earlier = [home for home in homes if home <= index]
        for home in earlier[-1:] or homes[:1]:
            rewards[home] += turn.reward
    return rewards


def _states(turns: Sequence[Turn]) -> list[int]:
    """For each turn, a number for the last observation before it: equal where the text is.

    A turn that spent no round had no answer, and the next one is in the same state. Every attempt
    begins in state 0, that of the task itself, which begins anew.
    """
    states = [0]
    for turn, following in itertools.pairwise(turns):
        if following.attempt != turn.attempt:
            states.append(0)
        elif turn.observation is None:
            states.append(states[-1])
        else:
            states.append(derive_seed("state", turn.observation))
    return states[: len(turns)]


def _join(
    episode: Episode,
    indices: Sequence[int],
    turn_rewards: Sequence[float],
    turn_states: Sequence[int],
    episode_number: int,
    group_number: int,
) -> TokenSequence:
    """One context: the turns with these indices, each as what was read and what was said."""
    pieces: list[_Columns] = []
    for index in indices:
        turn = episode.turns[index]
        pieces.append(_read(turn.prompt_ids))
        pieces.append(_said(turn, index, turn_rewards[index], turn_states[index]))
    if indices[-1] == len(episode.turns) - 1:
        pieces.append(_read(episode.final_ids))

    def column(name: str, dtype: type[_Number]) -> NDArray[_Number]:
        return np.array([value for piece in pieces for value in piece[name]], dtype)

    return TokenSequence(
        token_ids=column("token_ids", np.int64),
        mask=column("mask", np.bool_),
        logprobs=column("logprobs", np.float64),
        rewards=column("rewards", np.float64),
        turns=column("turns", np.int64),
        versions=column("versions", np.int64),
        states=column("states", np.int64),
        episode=episode_number,
        group=group_number,
        truncated=episode.ending.is_truncation,
        task=episode.task.id,
    )


def _read(token_ids: Sequence[int]) -> _Columns:
    """What the policy was given to read, token by token."""
    num = len(token_ids)
    return {
        "token_ids": token_ids,
        "mask": [False] * num,
        "logprobs": [0.0] * num,
        "rewards": [0.0] * num,
        "turns": [-1] * num,
        "versions": [-1] * num,
        "states": [-1] * num,
    }


def _said(turn: Turn, index: int, reward: float, state: int) -> _Columns:
    """What the policy sampled, token by token, with the turn's reward at its end."""
    num = len(turn.token_ids)
    assert len(turn.logprobs) == num, "every sampled token has its log-probability"
    return {
        "token_ids": turn.token_ids,
        "mask": [turn.trained] * num,
        "logprobs": turn.logprobs,
        "rewards": [*[0.0] * (num - 1), reward][:num],
        "turns": [index] * num,
        "versions": [turn.policy_version] * num,
        "states": [state] * num,
    }
