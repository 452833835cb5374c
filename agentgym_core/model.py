"""Which language model a run trains: plain data; `hf.py` loads it."""

import attrs


@attrs.frozen(kw_only=True)
class ScratchModel:
    """A small Qwen2-shaped model with random weights and a word-level tokenizer.

    The tokenizer's vocabulary is the environments' own text (`Environment.corpus`), with digits
    split, so that a model of about a million parameters can play on a laptop's CPU.
    """

    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_key_value_heads: int = 2
    intermediate_size: int = 512
    max_position_embeddings: int = 2048


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
