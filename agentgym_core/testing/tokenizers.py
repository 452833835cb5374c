"""A real tokenizer without a download, and chat templates with every habit there is.

The templates are short, but do to a conversation what the models' own do.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""SmolLM2, Qwen2.5: extends."""

DROPS_THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and '</think>' in m.content and not loop.last %}"
    "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen3: rewrites history where a reply holds `<think>`."""

OPENS_THINKING = DROPS_THINKING.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
"""DeepSeek-R1, QwQ: the generation prompt already opens `<think>`."""

NO_SYSTEM = (
    "<bos>{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<|im_start|>{{ 'model' if m.role == 'assistant' else 'user' }}\n"
    "{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
"""Gemma: no system role, strict alternation, white space trimmed."""

INSTRUCTION = (
    "<bos>{% for m in messages %}"
    "{% if m.role == 'assistant' %} {{ m.content | trim }}<eos>"
    "{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
)
"""Mistral: no roles in words; ends a turn with the end of sequence; no generation prompt."""

SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<bos>", "<eos>", "[INST]", "[/INST]")


WORDS = (
    "{% for m in messages %}<{{ m.role[0] }}> {{ m.content }} <e> {% endfor %}"
    "{% if add_generation_prompt %}<a> {% endif %}"
)
"""For `WordTokenizer`. Extends."""

WORDS_WITHOUT_THINKING = WORDS.replace(
    "{{ m.content }}",
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}",
)
"""For `WordTokenizer`. Rewrites history where a reply holds `<think>`."""


class WordTokenizer:
    """One id a word, for transcripts that are written out by hand.

    Args:
        words: the vocabulary; a word's id is its place.
        chat_template: `WORDS`, or another one of words with single spaces between them.
    """

    eos_token_id = 0
    added_tokens_decoder: ClassVar[dict[int, Any]] = {}

    def __init__(self, words: str, chat_template: str = WORDS) -> None:
        from jinja2 import Template

        self.words = ["<e>", "<s>", "<u>", "<a>", *words.split()]
        self.chat_template = chat_template
        self._template = Template(chat_template)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The words' places."""
        del add_special_tokens
        return [self.words.index(word) for word in text.split()]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The words at these places, with spaces between."""
        del skip_special_tokens
        return " ".join(self.words[place] for place in ids)

    def apply_chat_template(
        self, conversation: Sequence[Any], tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """Text alone."""
        del tokenize
        return self._template.render(
            messages=conversation, add_generation_prompt=add_generation_prompt
        )


def byte_tokenizer(chat_template: str | None = CHATML, eos_token: str = "<|im_end|>") -> Any:
    """A byte-level BPE tokenizer that covers any text, as GPT-2's does.

    Its few merges suffice for encode(decode(ids)) != ids: the ids of "h" and "e" decode to "he",
    which encodes to one id.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("o", "o"), ("Ġ", "g")]
    words = [*letters, *(a + b for a, b in merges)]
    model = models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=merges)
    tokenizer: Any = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos_token,
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )
