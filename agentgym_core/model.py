"""Which language model a run trains: plain data; `hf.py` loads it."""

import attrs
from attrs.validators import ge


@attrs.frozen(kw_only=True)
class ScratchModel:
    """A small Qwen2-shaped model with random weights and a word-level tokenizer.

    The tokenizer's vocabulary is the environments' own text (`Environment.corpus`), with digits
    split, so that a model of about a million parameters can play on a laptop's CPU.
    """

    hidden_size: int = attrs.field(default=128, validator=ge(1))
    num_layers: int = attrs.field(default=4, validator=ge(1))
    num_heads: int = attrs.field(default=4, validator=ge(1))
    num_key_value_heads: int = attrs.field(default=2, validator=ge(1))
    intermediate_size: int = attrs.field(default=512, validator=ge(1))
    max_position_embeddings: int = attrs.field(default=2048, validator=ge(1))

    def __attrs_post_init__(self) -> None:
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size is divided into num_heads parts of an even size: {self.hidden_size} "
                f"is no multiple of 2 x {self.num_heads}"
            )
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_heads share num_key_value_heads evenly: {self.num_heads} is no multiple of "
                f"{self.num_key_value_heads}"
            )


@attrs.frozen(kw_only=True)
class ModelConfig:
    """The `model` block: exactly one of `path` and `scratch`."""

    path: str | None = None
    """A Hub id, a folder that `save_pretrained` wrote, or the folder of a GGUF file."""
    gguf_file: str | None = None
    """Name of the GGUF file in `path`."""
    scratch: ScratchModel | None = None
    chat_template: str | None = None
    """A Jinja file, in place of the tokenizer's own template."""
    attn_implementation: str = "sdpa"
    trust_remote_code: bool = False

    def __attrs_post_init__(self) -> None:
        if (self.path is None) == (self.scratch is None):
            raise ValueError(
                "give exactly one of `path` (a Hub id or folder) and `scratch`; "
                "null takes back what another file gives"
            )
        if self.gguf_file is not None and self.path is None:
            raise ValueError("`gguf_file` needs `path`: the folder or Hub id that holds it")
