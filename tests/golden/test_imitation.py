"""A weighted mean over the learned tokens of the whole minibatch."""

import asyncio
from math import log
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch

from agentgym_core.conversations import Conversation
from agentgym_core.imitation import Imitation, Lesson, is_cut, lesson_weights, to_lessons
from agentgym_core.renderer import Renderer
from agentgym_core.settings import Limits
from agentgym_core.testing.backend import RecordingTrainer
from agentgym_core.testing.tokenizers import CHATML, NO_SYSTEM, byte_tokenizer
from agentgym_core.types import Message, TokenSequence, TokenTensors


def sequence(mask, episode=0):
    zeros = np.zeros(len(mask))
    return TokenSequence(
        token_ids=np.arange(len(mask)),
        mask=np.array(mask, np.bool_),
        logprobs=zeros,
        rewards=zeros,
        turns=zeros.astype(np.int64),
        versions=zeros.astype(np.int64),
        episode=episode,
        group=episode,
    )


FULL = Lesson(sequences=(sequence([0, 1]), sequence([0, 1, 0])), weight=1.0)
HALF = Lesson(sequences=(sequence([0, 1, 1, 1]),), weight=0.5)
CHANCES = {2: [1, 1 / 2], 3: [1, 1 / 4, 1], 4: [1, 1 / 2, 1 / 8, 1 / 16]}
"""Probability of each token, by the length of the sequence."""


class Fixed(Imitation):
    async def lessons(self, run):
        return [FULL, HALF]


def loss_of(batch, algorithm):
    """As a backend adds it up, row by row."""
    total = 0.0
    for row in batch.minibatches[0].rows:
        tensors = [torch.tensor(values)[None] for values in (row.mask, row.advantages)]
        logprobs = torch.tensor(CHANCES[len(row)], dtype=torch.float64).log()[None]
        rest = dict.fromkeys(["old_logprobs_NT", "sampled_logprobs_NT"], logprobs)
        loss_NT, _ = algorithm.loss(
            TokenTensors(logprobs_NT=logprobs, mask_NT=tensors[0], advantages_NT=tensors[1], **rest)
        )
        total += float((loss_NT * torch.tensor(row.weights)).sum())
    return total


def test_weights_one_and_a_half_by_hand():
    """Weight 1: ln 2 + ln 4 over 2 tokens. Weight 1/2: ln 2 + ln 8 + ln 16 over 3.

    (1 x 3 ln 2 + 1/2 x 8 ln 2) / (1 x 2 + 1/2 x 3) = 7 ln 2 / 3.5 = 2 ln 2.
    """
    algorithm, run = Fixed(batch_size=2), SimpleNamespace(trainer=RecordingTrainer(), seed=1)
    run.prepared = asyncio.run(algorithm.prepare(run))
    asyncio.run(algorithm.train_step(run, 0))
    (batch,) = run.trainer.batches
    assert loss_of(batch, algorithm) == pytest.approx(2 * log(2), abs=1e-12)


def test_each_token_of_a_lesson_has_its_weight_over_the_sum_of_weights():
    full, cut, half = lesson_weights([FULL, HALF])
    assert full.tolist() == pytest.approx([0, 5 / 3.5])  # of 5 tokens, whose weights add up to 3.5
    assert cut.tolist() == pytest.approx([0, 5 / 3.5, 0])
    assert half.tolist() == pytest.approx([0, 2.5 / 3.5, 2.5 / 3.5, 2.5 / 3.5])


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_equal_weights_are_none(weight):
    lessons = [Lesson(sequences=lesson.sequences, weight=weight) for lesson in (FULL, HALF)]
    assert all((w[w > 0] == 1.0).all() for w in lesson_weights(lessons))


def test_a_lesson_without_a_learned_token_changes_nothing():
    silent = Lesson(sequences=(sequence([0, 0]),), weight=9.0)
    *found, none = lesson_weights([FULL, HALF, silent])
    assert not none.any()
    expected = lesson_weights([FULL, HALF])
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_lessons_are_numbered_in_their_order():
    prepared = asyncio.run(Fixed().prepare(SimpleNamespace()))
    numbers = [[(s.episode, s.group) for s in lesson.sequences] for lesson in prepared]
    assert numbers == [[(0, 0), (0, 0)], [(1, 1)]]


def test_what_is_not_learned_costs_nothing_whatever_it_holds():
    row = torch.tensor([[float("nan"), log(0.5)]], dtype=torch.float64)
    rest = dict.fromkeys(["logprobs_NT", "old_logprobs_NT", "sampled_logprobs_NT"], row)
    loss_NT, _ = Fixed().loss(
        TokenTensors(
            mask_NT=torch.tensor([[False, True]]), advantages_NT=torch.tensor([[2.0, 2.0]]), **rest
        )
    )
    assert loss_NT.tolist() == [[0.0, pytest.approx(2 * log(2))]]


def test_a_lesson_weighs_one_and_a_step_has_sixteen():
    assert Lesson(sequences=()).weight == 1.0
    assert Fixed().batch_size == 16
    assert Fixed(batch_size=1).batch_size == 1
    with pytest.raises(ValueError, match="batch_size"):
        Fixed(batch_size=0)


def test_demonstrations_whose_turns_do_not_all_fit_are_counted(caplog):
    talk = tuple(Message(role, "a") for role in ("system", "user", "assistant"))
    short, long = Conversation(messages=talk), Conversation(messages=talk + talk[1:])
    assert not is_cut(short, [sequence([0, 1])])
    assert is_cut(long, [sequence([0, 1])])
    assert is_cut(short, [])
    limits = Limits(max_prompt_tokens=99, max_response_tokens=20, max_tokens=9)
    renderer = Renderer(byte_tokenizer(CHATML))
    run = SimpleNamespace(renderer=renderer, config=SimpleNamespace(limits=limits))
    assert [len(lesson.sequences) for lesson in to_lessons(run, [short], 0.5)] == [1]
    assert not caplog.records
    lessons = to_lessons(run, [short, long], 0.5)
    assert [lesson.weight for lesson in lessons] == [0.5, 0.5]
    assert [lesson.num_learned for lesson in lessons] == [2, 2]
    assert caplog.messages == [
        "1 of 2 demonstrations do not fit limits.max_prompt_tokens and "
        "limits.max_response_tokens: the turns beyond are not learned"
    ]


def test_what_the_template_refuses_is_named_with_its_place():
    renderer = Renderer(byte_tokenizer(NO_SYSTEM))
    limits = Limits(max_prompt_tokens=99, max_response_tokens=20, max_tokens=9)
    run = SimpleNamespace(renderer=renderer, config=SimpleNamespace(limits=limits))
    backwards = Conversation(
        messages=(Message("assistant", "a"), Message("user", "b"), Message("assistant", "c")),
        place="talk.jsonl:7",
    )
    with pytest.raises(ValueError, match=r"^talk\.jsonl:7: the chat template refuses the roles"):
        to_lessons(run, [backwards], 1.0)
    forwards = attrs.evolve(backwards, messages=backwards.messages[1:])
    (lesson,) = to_lessons(run, [forwards], 1.0)
    assert [sequence.task for sequence in lesson.sequences] == ["talk.jsonl:7"]
    torn = attrs.evolve(forwards, messages=(Message("user", "\ud800"), *forwards.messages[1:]))
    with pytest.raises(ValueError, match=r"^talk\.jsonl:7: \w*Error: "):
        to_lessons(run, [torn], 1.0)
