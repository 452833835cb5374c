"""The one loader of tokenizers and models, shared by every engine and backend.

transformers, tokenizers and torch are imported when a function is called, never before.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentgym_core.files import new_folder
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.protocols import Tokenizer

UNKNOWN = "<unk>"
END_OF_TURN = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
SCRATCH_TEMPLATE = (
    "{%- for message in messages -%}"
    "<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""Every message renders alone, so that a conversation is a prefix of all its continuations."""

SPACE = "▁"
JOINER = "‿"
DIGITS = "0123456789"


def load_tokenizer(model: ModelConfig) -> Tokenizer:
    """Load the model's tokenizer, with the chat template that the config asks for.

    Where the folder declares no class of its own (`TokenizersBackend`, once called
    `PreTrainedTokenizerFast`), its `tokenizer.json` is taken as it stands: for some model types,
    qwen2 among them, `AutoTokenizer` would build another one, which gives other ids.
    """
    transformers = _transformers()
    options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code}
    loader = transformers.AutoTokenizer
    if model.gguf_file is not None:
        options["gguf_file"] = model.gguf_file
    else:
        read = transformers.models.auto.tokenization_auto.get_tokenizer_config
        if read(model.path, **options).get("tokenizer_class") in (
            "TokenizersBackend",
            "PreTrainedTokenizerFast",
        ):
            loader = transformers.PreTrainedTokenizerFast
    tokenizer = loader.from_pretrained(model.path, **options)
    if model.chat_template is not None:
        tokenizer.chat_template = Path(model.chat_template).read_text(encoding="utf-8")
    return tokenizer


def load_causal_lm(model: ModelConfig, dtype: str = "float32") -> Any:
    """Load the language model on the CPU, in eval mode (no dropout).

    Args:
        model: which one; a GGUF file is dequantised.
        dtype: of the weights, as torch calls it.

    Returns:
        A `transformers.PreTrainedModel` with a language-model head.
    """
    transformers = _transformers()
    import torch

    options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code}
    if model.gguf_file is not None:
        options["gguf_file"] = model.gguf_file
    if model.attn_implementation != "sdpa":  # transformers' own default, where the model has it
        options["attn_implementation"] = model.attn_implementation
    policy = transformers.AutoModelForCausalLM.from_pretrained(
        model.path, dtype=getattr(torch, dtype), **options
    )
    return policy.eval()


def export(policy: Any, tokenizer: Any, folder: Path) -> None:
    """Write a folder that `ModelConfig(path=folder)` and transformers load.

    A model that came out of a GGUF file is dequantised but still says that it is quantised, and
    transformers would refuse to save it: it is told otherwise.
    """
    if getattr(policy, "quantization_method", None) == "gguf":
        _forget_quantization(policy)
    policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _forget_quantization(policy: Any) -> None:
    for owner, name in (
        (policy, "hf_quantizer"),
        (policy, "is_quantized"),
        (policy, "quantization_method"),
        (policy.config, "quantization_config"),
    ):
        if hasattr(owner, name):
            delattr(owner, name)


def build_scratch(scratch: ScratchModel, texts: Iterable[str], folder: Path, seed: int) -> None:
    """Write a new model with random weights, and a tokenizer that knows the words of the texts.

    Args:
        scratch: the model's sizes.
        texts: everything whose words it should know, see `Environment.corpus`.
        folder: does not exist yet; it appears when it is whole.
        seed: of the weights; the global random state is neither read nor moved.
    """
    transformers = _transformers()
    import torch

    tokenizer = _word_tokenizer(texts)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=scratch.hidden_size,
        num_hidden_layers=scratch.num_layers,
        num_attention_heads=scratch.num_heads,
        num_key_value_heads=scratch.num_key_value_heads,
        intermediate_size=scratch.intermediate_size,
        max_position_embeddings=scratch.max_position_embeddings,
        # "SmallInit" (arXiv:1910.05895): so small a model learns about twice as fast at first.
        initializer_range=math.sqrt(0.4 / scratch.hidden_size),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.default_generator.manual_seed(seed)
        policy = transformers.Qwen2ForCausalLM(config)
    with new_folder(folder) as aside:
        export(policy, tokenizer, aside)
        reloaded = load_tokenizer(ModelConfig(path=str(aside)))
        probe = " ".join(sorted(tokenizer.get_vocab()))
        assert _ids(reloaded, probe) == _ids(tokenizer, probe), "saving changed the tokenizer"


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def _word_tokenizer(texts: Iterable[str]) -> Any:
    """A word-level tokenizer whose decoding gives back any text made of words that it knows.

    One entry for a word must do, wherever it stands, and a space must not cost a token. So a word
    always carries the space before it (`▁oak`), every line begins with one more, which decoding
    drops, and a word that follows something other than a space is glued to it by a joiner of its
    own:

        2 oak planks      ▁2 ▁oak ▁planks
        oak_log (64)      ▁oak _ ‿ ▁log ▁( 6 4 )

    Digits and punctuation, of which there are few, have one entry with the space and one without.
    """
    transformers = _transformers()
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    normalizer = normalizers.Sequence(
        [
            normalizers.Replace(" ", SPACE),
            normalizers.Replace(Regex(r"(?<![^\n])(?=[^\n])"), SPACE),
            normalizers.Replace(Regex(rf"(?<![{SPACE}\p{{L}}])(?=\p{{L}})"), JOINER + SPACE),
        ]
    )
    splitter = pre_tokenizers.Split(
        Regex(rf"{JOINER}|\s|{SPACE}?\p{{L}}+|{SPACE}?[^\s\p{{L}}{SPACE}{JOINER}]|{SPACE}"),
        "isolated",
    )
    pieces = {
        piece
        for text in texts
        for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    }
    words = Tokenizer(models.WordLevel(_vocabulary(pieces), unk_token=UNKNOWN))
    words.normalizer = normalizer
    words.pre_tokenizer = splitter
    words.decoder = decoders.Sequence(
        [
            decoders.Fuse(),
            decoders.Replace(JOINER + SPACE, ""),
            decoders.Replace(Regex(rf"(?:(?<![^\n])|(?<=\|>)){SPACE}"), ""),
            decoders.Replace(SPACE, " "),
        ]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token=UNKNOWN,
        eos_token=END_OF_TURN,
        additional_special_tokens=list(ROLES),
        clean_up_tokenization_spaces=False,
        chat_template=SCRATCH_TEMPLATE,
    )


def _vocabulary(pieces: set[str]) -> dict[str, int]:
    """Special tokens first, then what every text may need, then the pieces in a fixed order."""
    if not pieces:
        raise ValueError(
            "a model from scratch takes its words from `Environment.corpus`, which gave no text; "
            "implement it, or give `model.path` in place of `model.scratch`"
        )
    bare = {piece.removeprefix(SPACE) for piece in pieces} - {"", "\n", JOINER}
    marks = {piece for piece in bare if not piece[0].isalpha() and not piece.isspace()}
    marks.update(DIGITS)
    known = pieces | marks | {SPACE + mark for mark in marks} | {SPACE, "\n", JOINER}
    entries = [UNKNOWN, END_OF_TURN, *ROLES, *sorted(known)]
    return {entry: index for index, entry in enumerate(entries)}


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            'models and tokenizers need an extra: pip install "agentgym-core[hf]"'
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return transformers
