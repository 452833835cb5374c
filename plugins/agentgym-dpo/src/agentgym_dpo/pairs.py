"""Pairs of trajectories of one task, of which one is preferred: from groups or from files."""

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import attrs

from agentgym_core.conversations import Conversation, to_messages
from agentgym_core.credit import SAME_REWARD
from agentgym_core.data_files import find_files, read_rows
from agentgym_core.imitation import is_cut, render
from agentgym_core.sequences import to_sequences
from agentgym_core.types import Group, Message, TokenSequence
from agentgym_core.wording import shown

log = logging.getLogger(__name__)

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
    sequences = to_sequences(groups)
    learned = {sequence.episode for sequence in sequences if sequence.mask.any()}
    return Preferences(
        sequences=tuple(sequences), pairs=tuple(pair for pair in pairs if learned & {*pair})
    )


def pairs_of_files(run: Any, data: str | Sequence[str]) -> Preferences:
    """The pairs of files, rendered as the run's policy meets them in play.

    A row is TRL's conversational preference: `chosen` and `rejected`, lists of OpenAI-style
    messages, and perhaps `prompt`, the messages before both, in which nothing is learned. An
    assistant message with `"loss": false` is read and not learned. A pair is left out, with a
    warning, if one of its sides goes beyond `limits`: half of it would be compared with the whole
    of the other.

    Raises:
        ValueError: a file or row is none, is of two tasks, chooses what it rejects, or has a side
            of which nothing is learned; says where.
    """
    rows = [row for path in find_files(data) for row in read_rows(path)]
    conversations = [side for place, row in rows for side in _sides(row, place)]
    found = [render(run, side, number) for number, side in enumerate(conversations)]
    whole = [not is_cut(*side) for side in zip(conversations, found, strict=True)]
    pairs = [(a, a + 1) for a in range(0, len(found), 2) if whole[a] and whole[a + 1]]
    if len(pairs) < len(rows):
        log.warning(
            "%d of %d pairs are left out: a side of theirs does not fit limits.max_prompt_tokens "
            "and limits.max_response_tokens",
            len(rows) - len(pairs),
            len(rows),
        )
    sequences = tuple(sequence for side in found for sequence in side)
    return Preferences(sequences=sequences, pairs=tuple(pairs))


def _pairs_of(rewards: Mapping[int, float], pairing: Pairing, margin: float) -> list[Pair]:
    if not rewards:
        return []
    ranked = sorted(rewards, key=lambda number: -rewards[number])
    worst = min(rewards, key=lambda number: rewards[number])
    candidates = itertools.combinations(ranked, 2) if pairing == "all" else [(ranked[0], worst)]
    return [(a, b) for a, b in candidates if rewards[a] - rewards[b] > margin]


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
    for side, messages in (("chosen", chosen), ("rejected", rejected)):
        if not any(message.role == "assistant" and message.loss for message in messages):
            raise ValueError(
                f"{place}: nothing is learned of `{side}`: a pair compares what the assistant says "
                "on both sides"
            )
    if _said(_task(chosen)) != _said(_task(rejected)):
        raise ValueError(
            f"{place}: `chosen` and `rejected` begin differently: a pair is of one task, whose "
            "messages up to the first reply are the same"
        )
    sides = [Conversation(messages=(*asked, *side), place=place) for side in (chosen, rejected)]
    return sides[0], sides[1]


def _task(messages: Sequence[Message]) -> list[Message]:
    """What comes before the first reply."""
    return list(itertools.takewhile(lambda message: message.role != "assistant", messages))


def _said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]
