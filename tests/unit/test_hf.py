"""Loading and saving models: tokenizers with exact decoding, GGUF files, models from scratch."""

import subprocess
import sys

import gguf
import numpy as np
import pytest
import torch

from agentgym_core import hf
from agentgym_core.model import ModelConfig, ScratchModel
from agentgym_core.renderer import Renderer
from agentgym_core.types import Message

SMALL = ScratchModel(hidden_size=16, num_layers=1, intermediate_size=24, num_heads=2)
TEXTS = [
    "Goal: craft 3 oak planks.\nYou have: 2 oak_log (big), 1 stick; x2y",
    "What do you craft? Got 64 of them. It's done - no luck!",
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scratch") / "model"
    hf.build_scratch(SMALL, TEXTS, folder, seed=3)
    return ModelConfig(path=str(folder))


@pytest.fixture(scope="module")
def tokenizer(scratch):
    return hf.load_tokenizer(scratch)


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    "text",
    [
        *TEXTS,
        "",
        " ",
        "\n",
        "oak",
        " oak",
        "oak ",
        "oak  planks",
        "oak\nplanks",
        "\n\noak\n\n planks\n",
        "  - oak: 17\n  - planks",
        "3 oak",
        "- oak",
        "(oak)",
        "oak_planks",
        "craft 128 oak, 2 planks.",
        "x2y",
        "oak - planks",
    ],
)
def test_decoding_gives_the_text_back(tokenizer, text):
    ids = encode(tokenizer, text)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_spaces_cost_nothing_and_a_word_has_one_entry(tokenizer):
    assert len(encode(tokenizer, "craft 3 oak planks")) == 4
    assert len(encode(tokenizer, "craft 12 oak planks")) == 5  # digits are split
    (oak,) = encode(tokenizer, "oak")
    for text in ("craft oak", "oak craft", "oak\ncraft", "craft\noak", "oak.", "_oak", "(oak)"):
        assert encode(tokenizer, text).count(oak) == 1, text


def test_unknown_words_are_unk_and_the_rest_stays(tokenizer):
    ids = encode(tokenizer, "craft birch planks")
    assert ids[1] == tokenizer.unk_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "craft planks"


def test_any_number_and_any_punctuation_of_the_corpus_is_known(tokenizer):
    text = "9876543210 5:6 (7) ; _8 ? 9! . -"
    ids = encode(tokenizer, text)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_the_chat_template_extends_and_its_turns_decode(tokenizer):
    renderer = Renderer(tokenizer)
    traits = renderer.traits
    assert (traits.system_role, traits.extends, traits.opens) == (True, True, "")
    assert renderer.stop_ids == {tokenizer.eos_token_id}
    user = Message("user", "Goal: craft oak.\nYou have: stick")
    prompt, ids = renderer.open([user])
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    assert (tokens[0], tokens[-2:]) == ("<|user|>", ["<|end|>", "<|assistant|>"])
    assert tokenizer.decode(list(ids), skip_special_tokens=False) == prompt.text
    reply = renderer.reply_ids(Message("assistant", "craft 2 oak"))
    assert renderer.reply_text(reply) == "craft 2 oak"
    extended, more, extends = renderer.extend(prompt, reply, [Message("user", "Got oak")])
    assert extends
    assert list(ids + reply + more) == encode(tokenizer, extended.text)


def test_a_model_from_scratch_loads_as_it_was_built(scratch, tokenizer):
    policy = hf.load_causal_lm(scratch)
    assert not policy.training
    assert policy.config.vocab_size == len(tokenizer) == policy.lm_head.weight.shape[0]
    assert policy.lm_head.weight is policy.model.embed_tokens.weight
    assert (policy.config.hidden_size, policy.config.num_hidden_layers) == (16, 1)
    ids = torch.tensor([encode(tokenizer, TEXTS[0])])
    with torch.no_grad():
        assert torch.equal(policy(ids).logits, hf.load_causal_lm(scratch)(ids).logits)


def test_the_seed_alone_decides_the_weights(tmp_path):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    models = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        hf.build_scratch(SMALL, TEXTS, tmp_path / name, seed=seed)
        models.append(hf.load_causal_lm(ModelConfig(path=str(tmp_path / name))).state_dict())
    assert torch.equal(torch.get_rng_state(), state)
    embeddings = [model["model.embed_tokens.weight"] for model in models]
    assert torch.equal(embeddings[0], embeddings[1])
    assert not torch.equal(embeddings[0], embeddings[2])


def test_the_vocabulary_does_not_depend_on_the_order_of_texts(tmp_path, tokenizer):
    hf.build_scratch(SMALL, reversed(TEXTS), tmp_path / "model", seed=3)
    other = hf.load_tokenizer(ModelConfig(path=str(tmp_path / "model")))
    assert other.get_vocab() == tokenizer.get_vocab()


def test_a_corpus_without_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`Environment.corpus`, which gave no text"):
        hf.build_scratch(SMALL, [], tmp_path / "model", seed=0)
    assert not list(tmp_path.iterdir())


def test_a_chat_template_from_a_file_replaces_the_own_one(scratch, tmp_path):
    path = tmp_path / "other.jinja"
    path.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    changed = hf.load_tokenizer(ModelConfig(path=scratch.path, chat_template=str(path)))
    conversation = [{"role": "user", "content": "oak"}]
    text = changed.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert text == "[user]oak"


def test_without_transformers_the_error_is_the_command_that_helps(monkeypatch, scratch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "agentgym-core\[hf\]"'):
        hf.load_tokenizer(scratch)


def test_importing_the_loader_imports_nothing_heavy():
    code = (
        "import sys, agentgym_core.hf\n"
        "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def gguf_model(tmp_path):
    """A random Llama of one layer in a GGUF file, its matrices quantised to 8 bits."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(16)
    tokens = ["<unk>", "<end>", *(chr(97 + i) for i in range(26)), "ab", "Ġ"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * 28)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(1)
    writer.add_unk_token_id(0)
    matrices = {
        "token_embd": (30, 32),
        "output": (30, 32),
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (32, 32),
        "blk.0.attn_v": (32, 32),
        "blk.0.attn_output": (32, 32),
        "blk.0.ffn_gate": (64, 32),
        "blk.0.ffn_up": (64, 32),
        "blk.0.ffn_down": (32, 64),
    }
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, shape in matrices.items():
        values = random.normal(size=shape).astype(np.float32) / 5
        quantised = gguf.quants.quantize(values, kind)
        writer.add_tensor(f"{name}.weight", quantised, raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelConfig(path=str(tmp_path), gguf_file="tiny.gguf")


def test_a_gguf_file_loads_and_its_export_is_the_same_model(gguf_model, tmp_path):
    policy, tokenizer = hf.load_causal_lm(gguf_model), hf.load_tokenizer(gguf_model)
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert encode(tokenizer, "abc") == [28, 4]
    folder = tmp_path / "exported"
    hf.export(policy, tokenizer, folder)
    exported = ModelConfig(path=str(folder))
    again = hf.load_causal_lm(exported)
    ids = torch.tensor([[3, 28, 9]])
    with torch.no_grad():
        assert torch.equal(policy(ids).logits, again(ids).logits)
    assert encode(hf.load_tokenizer(exported), "abc abz") == encode(tokenizer, "abc abz")
