"""From episodes to the token sequences that training sees: exactly what the engine saw."""

from collections.abc import Sequence

import numpy as np

from agentgym_core.types import Episode, Group, TokenSequence, Turn


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
    contexts: dict[int, list[int]] = {}
    for index, turn in enumerate(episode.turns):
        contexts.setdefault(turn.sequence, []).append(index)
    return [
        _join(episode, contexts[context], rewards, episode_number, group_number)
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


def _join(
    episode: Episode,
    indices: Sequence[int],
    turn_rewards: Sequence[float],
    episode_number: int,
    group_number: int,
) -> TokenSequence:
    """One context: the turns with these indices, each as what was read and what was said."""
    token_ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    rewards: list[float] = []
    turns: list[int] = []
    versions: list[int] = []
    for index in indices:
        turn = episode.turns[index]
        read, said = len(turn.prompt_ids), len(turn.token_ids)
        assert len(turn.logprobs) == said, "every sampled token has its log-probability"
        token_ids += turn.prompt_ids + turn.token_ids
        mask += [False] * read + [turn.trained] * said
        logprobs += [0.0] * read + list(turn.logprobs)
        rewards += [0.0] * (read + said)
        turns += [-1] * read + [index] * said
        versions += [-1] * read + [turn.policy_version] * said
        if said:
            rewards[-1] = turn_rewards[index]
    if indices[-1] == len(episode.turns) - 1:
        unread = len(episode.final_ids)
        token_ids += episode.final_ids
        mask += [False] * unread
        logprobs += [0.0] * unread
        rewards += [0.0] * unread
        turns += [-1] * unread
        versions += [-1] * unread
    return TokenSequence(
        token_ids=np.array(token_ids, np.int64),
        mask=np.array(mask, np.bool_),
        logprobs=np.array(logprobs, np.float64),
        rewards=np.array(rewards, np.float64),
        turns=np.array(turns, np.int64),
        versions=np.array(versions, np.int64),
        episode=episode_number,
        group=group_number,
        truncated=episode.ending.is_truncation,
        task=episode.task.id,
    )
