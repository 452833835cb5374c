"""Pairs of trajectories of one task, of which one is preferred: from groups or from files."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import attrs

from agentgym_core.conversations import Conversation, to_messages
from agentgym_core.credit import SAME_REWARD
from agentgym_core.data_files import find_files, read_rows
from agentgym_core.imitation import warn_of_cut
from agentgym_core.sequences import to_sequences
from agentgym_core.supervised import to_supervised
from agentgym_core.types import Group, Message, TokenSequence
from agentgym_core.wording import shown

Pairing = Literal["best-worst", "all"]
Pair = tuple[int, int]
"""Numbers of the chosen and of the rejected trajectory, as in `TokenSequence.episode`."""

_EXPECTED = (
    'expected {"chosen": [{"role": …, "content": …}, …], "rejected": […]}, and perhaps "prompt" '
    "with the messages before both"
)


@attrs.frozen(kw_only=True, eq=False)
class Preferences:
    """Trajectories, and which of them are preferred to which."""

    sequences: tuple[TokenSequence, ...]
    pairs: tuple[Pair, ...]

    def only(self, pairs: Sequence[Pair]) -> "Preferences":
        """Some of the pairs, with the sequences that are theirs."""
        members = {number for pair in pairs for number in pair}
        kept = tuple(s for s in self.sequences if s.episode in members)
        return Preferences(sequences=kept, pairs=tuple(pairs))


def pairs_of_groups(groups: Sequence[Group], pairing: Pairing, margin: float) -> Preferences:
    """Pair the attempts at each task by their rewards.

    `best-worst` gives one pair for each group: its best attempt, and its worst; of equals the
    first. `all` gives every two attempts. Either way a pair's rewards differ by more than `margin`,
    so that ties give no pair.

    A pair of which neither trajectory has a learned token teaches nothing, and is left out.
    """
    pairs: list[Pair] = []
    number = 0
    for group in groups:
        rewards = {number + i: episode.reward for i, episode in enumerate(group.episodes)}
        number += len(rewards)
        pairs += _pairs_of(rewards, pairing, max(margin, SAME_REWARD))
    return _teaching(to_sequences(groups), pairs)


def pairs_of_files(run: Any, data: str | Sequence[str]) -> Preferences:
    """The pairs of files, rendered as the run's policy meets them in play.

    A row is TRL's conversational preference: `chosen` and `rejected`, lists of OpenAI-style
    messages, and perhaps `prompt`, the messages before both, in which nothing is learned. An
    assistant message with `"loss": false` is read and not learned.

    Raises:
        ValueError: a file or row is none, or chooses what it rejects; says where.
    """
    rows = [row for path in find_files(data) for row in read_rows(path)]
    conversations = [side for place, row in rows for side in _sides(row, place)]
    found = [
        tuple(to_supervised(run.renderer, side.messages, number, run.config.limits))
        for number, side in enumerate(conversations)
    ]
    warn_of_cut(conversations, found)
    pairs = [(number, number + 1) for number in range(0, len(found), 2)]
    return _teaching([sequence for sequences in found for sequence in sequences], pairs)


def _pairs_of(rewards: Mapping[int, float], pairing: Pairing, margin: float) -> list[Pair]:
    if not rewards:
        return []
    ranked = sorted(rewards, key=lambda number: -rewards[number])
    worst = min(rewards, key=lambda number: rewards[number])
    candidates = itertools.combinations(ranked, 2) if pairing == "all" else [(ranked[0], worst)]
    return [(a, b) for a, b in candidates if rewards[a] - rewards[b] > margin]


def _teaching(sequences: Sequence[TokenSequence], pairs: Sequence[Pair]) -> Preferences:
    learned = {sequence.episode for sequence in sequences if sequence.mask.any()}
    kept = tuple(pair for pair in pairs if learned & {*pair})
    return Preferences(sequences=tuple(sequences), pairs=kept)


def _sides(row: Any, place: str) -> tuple[Conversation, Conversation]:
    try:
        if not isinstance(row, Mapping):
            raise TypeError(f"got {shown(row)}")
        fields = cast("Mapping[str, Any]", row)
        asked = [attrs.evolve(m, loss=False) for m in to_messages(fields.get("prompt", []))]
        chosen, rejected = (to_messages(fields[side]) for side in ("chosen", "rejected"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place}: {_EXPECTED}; {type(error).__name__}: {error}") from error
    if _said(chosen) == _said(rejected):
        raise ValueError(f"{place}: `chosen` and `rejected` are the same: leave the row out")
    sides = [Conversation(messages=(*asked, *side), place=place) for side in (chosen, rejected)]
    return sides[0], sides[1]


def _said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]
