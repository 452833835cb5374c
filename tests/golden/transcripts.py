"""Transcripts: what is trained of an episode, word by word.

A transcript is written as `<u> two <e> <a> 0[down <e>]`: in brackets is what the policy sampled and
learns from, before them stands the number of the turn. Every word is one token.
"""

import asyncio

import pytest

from agentgym_core.actions import WholeReply
from agentgym_core.agents.context import ContextPolicy
from agentgym_core.batching import token_weights
from agentgym_core.handler import ModelPolicy
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import Limits
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import WORDS, WordTokenizer
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Sampling

VOCABULARY = (  # its ids are 4, 5, …, after <e> 0, <s> 1, <u> 2, <a> 3
    "Count. Reply. The number is 0. 1. 2. 3. 4. What that? Too early. "
    "down lift off wait <think> </think> hm so far too soon "
    "Gone. Sum up. Before: Plan. Go. Again. Plan: Why. Notes: Loop. On."
)
DROP = ContextPolicy(when_full="drop", note="Gone.")
SUMMARISE = ContextPolicy(when_full="summarise", request="Sum up.", heading="Before:")
OPEN = "<s> Count. Reply. <e> <u> The number is {}. <e>"  # 10 tokens; <a> makes it 11


class Terse(Countdown):
    """The countdown in few words."""

    def instructions(self):
        return "Count."

    @property
    def action_format(self):
        return WholeReply(instruction="Reply.")


def play(agent, replies, *, number, response=200, reply=9, max_rounds=9, template=WORDS):
    """One episode, its tokenizer and its sequences."""
    tokenizer = WordTokenizer(VOCABULARY, template)
    said = iter(replies)
    sampler = ScriptedSampler(script=lambda _: tokenizer.encode(f"{next(said)} <e>"))
    limits = Limits(max_prompt_tokens=30, max_response_tokens=response, max_tokens=reply)
    policy = ModelPolicy(renderer=Renderer(tokenizer), sampler=sampler, limits=limits)
    table = Table(environments={"countdown": Terse()}, agent=agent, policy=policy)
    order = Attempts(
        environment="countdown",
        task=Terse().tasks("train")[number - 1],
        num=1,
        max_rounds=max_rounds,
        sampling=Sampling(),
        seed=3,
    )
    groups = asyncio.run(play_groups(table, [order], 1))
    (episode,) = groups[0].episodes
    assert next(said, None) is None, "the policy was asked less often than that"
    check_requests(episode, sampler.requests, response)
    return episode, tokenizer, to_sequences(groups)


def check_requests(episode, requests, response):
    """Whatever the agent does, each context is what the engine saw, and no more than it may be."""
    contexts: dict[int, tuple[int, ...]] = {}
    for turn, request in zip(episode.turns, requests, strict=True):
        context = contexts.get(turn.sequence, ()) + turn.prompt_ids
        assert context == request.token_ids
        contexts[turn.sequence] = context + turn.token_ids
    first = len(episode.turns[0].prompt_ids)
    assert all(len(context) <= first + response for context in contexts.values())


def written(tokenizer, transcript):
    """Ids, mask and turns of a transcript."""
    ids, mask, turns, turn = [], [], [], -1
    for word in transcript.split():
        number, bracket, rest = word.partition("[")
        if bracket:
            turn, word = int(number), rest
        ids += tokenizer.encode(word.removesuffix("]"))
        mask.append(turn >= 0)
        turns.append(turn)
        turn = -1 if word.endswith("]") else turn
    return ids, mask, turns


def check(played, *transcripts, rewards=(), shares=()):
    """Every sequence is as it is written, and each trained token has its weight.

    Args:
        played: what `play` returned.
        transcripts: one for each sequence.
        rewards: of each sequence.
        shares: of each sequence in the weight of the episode.
    """
    _, tokenizer, sequences = played
    assert len(sequences) == len(transcripts)
    for sequence, transcript in zip(sequences, transcripts, strict=True):
        ids, mask, turns = written(tokenizer, transcript)
        assert tokenizer.decode(sequence.token_ids.tolist()) == tokenizer.decode(ids)
        assert sequence.token_ids.tolist() == ids
        assert sequence.mask.tolist() == mask
        assert sequence.turns.tolist() == turns
    assert [float(s.rewards.sum()) for s in sequences] == list(rewards)
    weights = token_weights(sequences, "episode-mean")
    assert [float(w.sum()) for w in weights] == pytest.approx(shares)
    num = sum(int(s.mask.sum()) for s in sequences)
    for sequence, weight in zip(sequences, weights, strict=True):
        assert weight.tolist() == pytest.approx((sequence.mask / num).tolist())


def think(*answers):
    return [f"<think> hm </think> {answer}" for answer in answers]
