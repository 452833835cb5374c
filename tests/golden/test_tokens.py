"""From sampled ids to trained ids: the same ids, whatever the tokenizer and the template do."""

import asyncio

import pytest

from agentgym_core.agents.act import Act
from agentgym_core.handler import ModelPolicy
from agentgym_core.renderer import Renderer
from agentgym_core.rollout import Attempts, Table, play_groups
from agentgym_core.sequences import to_sequences
from agentgym_core.settings import Limits
from agentgym_core.testing.engine import ScriptedSampler
from agentgym_core.testing.tokenizers import (
    CHATML,
    DROPS_THINKING,
    INSTRUCTION,
    NO_SYSTEM,
    OPENS_THINKING,
    byte_tokenizer,
)
from agentgym_core.testing.worlds import Countdown
from agentgym_core.types import Sampling

TEMPLATES = [CHATML, DROPS_THINKING, OPENS_THINKING, NO_SYSTEM, INSTRUCTION]


def play(template, replies, *, ends=True, split=True):
    """An episode whose engine samples letter by letter: no tokenizer would encode so."""
    renderer = Renderer(byte_tokenizer(template, "<eos>"))
    said = iter(replies)

    def script(request):
        text = next(said)
        ids = [renderer.encode(c)[0] for c in text] if split else list(renderer.encode(text))
        return [*ids, renderer.end_id] if ends else ids

    sampler = ScriptedSampler(script=script)
    limits = Limits(max_prompt_tokens=999, max_response_tokens=9999, max_tokens=80)
    task = Countdown().tasks("train")[1]
    order = Attempts(
        environment="countdown",
        task=task,
        num=1,
        max_rounds=len(replies),
        sampling=Sampling(),
        seed=5,
    )
    policy = ModelPolicy(renderer=renderer, sampler=sampler, limits=limits)
    table = Table(environments={"countdown": Countdown()}, agent=Act(), policy=policy)
    groups = asyncio.run(play_groups(table, [order], 1))
    return renderer, sampler.requests, groups


def replies_for(template):
    think = "hello</think>" if template == OPENS_THINKING else "<think>hello</think>"
    return [f"{think}Action: down", f"{think}Action: down", f"{think}Action: lift off"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_training_sees_the_ids_that_were_sampled(template):
    renderer, requests, groups = play(template, replies_for(template))
    (episode,) = groups[0].episodes
    assert episode.success
    for turn in episode.turns:
        text = renderer.tokenizer.decode(list(turn.token_ids), skip_special_tokens=False)
        assert renderer.encode(text) != turn.token_ids, "encode(decode(ids)) would be other ids"
    sequences = to_sequences(groups)
    sampled = [i for turn in episode.turns for i in turn.token_ids]
    trained = [int(i) for seq in sequences for i in seq.token_ids[seq.mask]]
    assert trained == sampled
    # every context is exactly what the engine saw last of it, and the reply to that
    assert len(sequences) == len({turn.sequence for turn in episode.turns})
    for number, sequence in enumerate(sequences):
        last = max(i for i, turn in enumerate(episode.turns) if turn.sequence == number)
        seen = (*requests[last].token_ids, *episode.turns[last].token_ids)
        assert tuple(sequence.token_ids.tolist()) == seen
    # the reward lies on the last sampled token, the sampled end of turn
    assert sequences[-1].rewards.tolist()[-1] == 1.0
    assert sum(float(seq.rewards.sum()) for seq in sequences) == 1.0


@pytest.mark.parametrize(
    ("template", "num_sequences"),
    [(CHATML, 1), (NO_SYSTEM, 1), (INSTRUCTION, 1), (DROPS_THINKING, 3), (OPENS_THINKING, 3)],
)
def test_only_a_template_that_rewrites_history_gives_several_sequences(template, num_sequences):
    _, _, groups = play(template, replies_for(template))
    assert len(to_sequences(groups)) == num_sequences


def test_a_sampled_end_is_trained_and_an_added_one_is_not():
    end = Renderer(byte_tokenizer(CHATML, "<eos>")).end_id
    for ends in (True, False):
        renderer, _, groups = play(CHATML, ["Action: down"] * 2, ends=ends)
        (sequence,) = to_sequences(groups)
        ids, mask = sequence.token_ids.tolist(), sequence.mask.tolist()
        first = next(i for i, trained in enumerate(mask) if trained)
        length = len("Action: down")
        assert ids[first + length] == end, "either way the reply is followed by its end of turn"
        assert mask[first : first + length] == [True] * length
        assert mask[first + length] is ends
        assert bool(sequence.logprobs[first + length]) is ends
        assert renderer.tokenizer.decode(ids[first : first + length]) == "Action: down"


def test_joined_turns_equal_one_full_render():
    renderer, _, groups = play(
        CHATML, ["Action: down", "Action: down", "Action: lift off"], split=False
    )
    (sequence,) = to_sequences(groups)
    (episode,) = groups[0].episodes
    whole = renderer.encode(renderer.render(episode.messages[:-1], generation_prompt=False))
    ids = tuple(sequence.token_ids.tolist())
    assert ids == whole[: len(ids)]
    assert renderer.tokenizer.decode(list(whole[len(ids) :])) == "\n"
