"""Labels and mask are shifted together, and only turns that are marked for loss are learned."""

import pytest

from agentgym_core.renderer import Renderer
from agentgym_core.settings import Limits
from agentgym_core.supervised import to_supervised
from agentgym_core.testing.tokenizers import CHATML, DROPS_THINKING, byte_tokenizer
from agentgym_core.types import Message

LIMITS = Limits(max_prompt_tokens=99, max_response_tokens=199, max_tokens=20)

DIALOGUE = (
    Message("user", "go"),
    Message("assistant", "no", loss=False),
    Message("user", "b"),
    Message("assistant", "ok"),
    Message("user", "nobody answers this"),
)


def learned(renderer, sequence):
    """The text of the trained tokens, and of the others."""
    decode = renderer.tokenizer.decode
    return (
        decode(sequence.token_ids[sequence.mask].tolist(), skip_special_tokens=False),
        decode(sequence.token_ids[~sequence.mask].tolist(), skip_special_tokens=False),
    )


def test_only_marked_turns_are_trained_with_their_end():
    renderer = Renderer(byte_tokenizer(CHATML))
    (sequence,) = to_supervised(renderer, DIALOGUE, 3, LIMITS)
    trained, read = learned(renderer, sequence)
    assert trained == "ok<|im_end|>"
    assert read == (
        "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
        "no<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = sequence.token_ids.tolist()
    assert tuple(ids) == renderer.encode(renderer.render(DIALOGUE[:4], False))[: len(ids)]
    assert sequence.mask[-3:].tolist() == [True, True, True]
    assert sequence.mask.sum() == 3
    assert [t for t in sequence.turns.tolist() if t >= 0] == [0, 0, 0, 1, 1, 1]
    assert (sequence.episode, sequence.group) == (3, 3)


def test_imitation_reads_the_ids_that_play_will_read():
    renderer = Renderer(byte_tokenizer(CHATML))
    (sequence,) = to_supervised(renderer, DIALOGUE, 0, LIMITS)
    prompt, ids = renderer.open(DIALOGUE[:1])
    reply = renderer.reply_ids(DIALOGUE[1])
    _, more, extends = renderer.extend(prompt, reply, DIALOGUE[2:3])
    assert extends
    played = ids + reply + more + renderer.reply_ids(DIALOGUE[3])
    assert tuple(sequence.token_ids.tolist()) == played


def test_a_template_that_rewrites_history_gives_a_context_for_each_turn():
    renderer = Renderer(byte_tokenizer(DROPS_THINKING))
    messages = [
        Message("user", "go"),
        Message("assistant", "<think>a</think>x"),
        Message("user", "on"),
        Message("assistant", "<think>b</think>y"),
    ]
    first, second = to_supervised(renderer, messages, 0, LIMITS)
    assert learned(renderer, first)[0] == "<think>a</think>x<|im_end|>"
    trained, read = learned(renderer, second)
    assert trained == "<think>b</think>y<|im_end|>"
    assert "<think>a" not in read
    assert "assistant\nx<|im_end|>" in read


@pytest.mark.parametrize("messages", [[], [Message("user", "hello")]])
def test_without_a_reply_there_is_nothing_to_learn(messages):
    assert to_supervised(Renderer(byte_tokenizer(CHATML)), messages, 0, LIMITS) == []


@pytest.mark.parametrize(
    ("prompt", "response", "turns"),
    [
        # The prompt: a mark, "user\n", "go", a mark, "\n", a mark, "assistant\n": 21. Replies of 3,
        # and between them as much as the prompt: a byte less in the message, a "\n" more.
        (21, 27, [0, 1]),
        (21, 26, [0]),
        (21, 3, [0]),
        (21, 2, None),
        (20, 99, None),
    ],
)
def test_turns_at_which_play_would_be_cut_are_left_out(prompt, response, turns):
    renderer = Renderer(byte_tokenizer(CHATML))
    limits = Limits(max_prompt_tokens=prompt, max_response_tokens=response, max_tokens=1)
    found = to_supervised(renderer, DIALOGUE, 0, limits)
    kept = [sorted(set(sequence.turns.tolist()) - {-1}) for sequence in found]
    assert kept == ([] if turns is None else [turns])


def test_a_rewritten_context_is_bounded_like_any_other():
    """Its length counts from its beginning, and what comes after one that is too long is gone."""
    renderer = Renderer(byte_tokenizer(DROPS_THINKING))
    messages = [
        Message("user", "go"),
        Message("assistant", "<think>a</think>x"),
        Message("user", "on"),
        Message("assistant", "<think>b</think>y"),
        Message("user", "u"),
        Message("assistant", "z"),
    ]

    def turns(response):
        limits = Limits(max_prompt_tokens=21, max_response_tokens=response, max_tokens=1)
        found = to_supervised(renderer, messages, 0, limits)
        return [sorted(set(sequence.turns.tolist()) - {-1}) for sequence in found]

    # "go" is 10 with its marks, and what opens a reply 11; the first reply has 17 and a mark. The
    # second prompt is 10 + 14 (a reply without its thinking) + 10 + 11 = 45; its reply has 18, too.
    # The third is 34 + 14 + 9 + 11 = 68; its reply has 2.
    assert turns(18) == [[0]]
    assert turns(45 + 18 - 21) == [[0], [1]]
    assert turns(45 + 18 - 21 - 1) == [[0]]
    assert turns(68 + 2 - 21) == [[0], [1], [2]]
    assert turns(68 + 2 - 21 - 1) == [[0], [1]]


def test_what_comes_after_the_first_turn_that_does_not_fit_is_not_even_rendered(monkeypatch):
    renderer = Renderer(byte_tokenizer(CHATML))
    rendered = []
    extend = renderer.extend
    monkeypatch.setattr(renderer, "extend", lambda *given: rendered.append(1) or extend(*given))
    limits = Limits(max_prompt_tokens=21, max_response_tokens=28, max_tokens=1)
    (sequence,) = to_supervised(renderer, DIALOGUE[:2] * 50, 0, limits)
    assert set(sequence.turns.tolist()) == {-1, 0, 1}
    assert len(rendered) == 2


def test_a_demonstration_has_no_rewards_and_was_sampled_by_no_policy():
    (sequence,) = to_supervised(Renderer(byte_tokenizer(CHATML)), DIALOGUE, 0, LIMITS)
    assert not sequence.rewards.any()
    assert not sequence.logprobs.any()
    assert set(sequence.versions.tolist()) == {-1}
