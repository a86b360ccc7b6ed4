"""Write a small but real GGUF of the llama or Gemma 3 architecture with seeded random weights.

    python -m tests.helpers.make_gguf OUT.gguf    # 8 MB, llama-server is ready in 40 ms

2.1 GB: --layers 20 --embd 3072 --ff 8192 --heads 24 --kv-heads 8 --type Q8_0

The vocabulary is 3 specials, 256 byte tokens and printable ASCII. The output rows of the byte
tokens are zero, so that generated text stays valid UTF-8; at temperature 0 and with one slot it
is the same every time.
"""

from __future__ import annotations

import argparse
import string

import gguf
import numpy as np


def write_model(
    path: str,
    *,
    layers: int = 4,
    embd: int = 256,
    ff: int = 1024,
    heads: int = 8,
    kv_heads: int = 4,
    context: int = 8192,
    type_name: str = "F16",
    experts: int = 0,
    window: int = 0,
    seed: int = 0,
) -> None:
    """Write the model to `path`; the same `seed` gives the same weights.

    With `experts`, two of them are used for each token. With `window` it is a Gemma 3, of whose
    layers five of six see so many tokens back.
    """
    rng = np.random.default_rng(seed)
    tokens = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{b:02X}>".encode() for b in range(256)]
    tokens += [c.encode() for c in string.ascii_letters + string.digits + " .,!?\u2581"]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    scores = [0.0] * 259 + [-1.0] * (len(tokens) - 259)

    out = gguf.GGUFWriter(path, "gemma3" if window else "llama")
    out.add_name("synthetic")
    out.add_context_length(context)
    out.add_embedding_length(embd)
    out.add_block_count(layers)
    out.add_feed_forward_length(ff)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(embd // heads)
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores(scores)
    out.add_token_types(types)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_vocab_size(len(tokens))
    if window:
        out.add_sliding_window(window)
        out.add_key_length(embd // heads)
        out.add_value_length(embd // heads)
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(2)

    def weight(name: str, shape: tuple[int, ...]) -> None:
        values = rng.standard_normal(shape, dtype=np.float32) * 0.02
        if type_name == "F16":
            out.add_tensor(name, values.astype(np.float16))
        else:
            kind = getattr(gguf.GGMLQuantizationType, type_name)
            out.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def norm(name: str, size: int = embd) -> None:
        out.add_tensor(name, np.ones(size, np.float32))

    kv = embd // heads * kv_heads
    weight("token_embd.weight", (len(tokens), embd))
    norm("output_norm.weight")
    head = rng.standard_normal((len(tokens), embd), dtype=np.float32) * 0.4
    head[:259] = 0
    out.add_tensor("output.weight", head.astype(np.float16))
    for i in range(layers):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        if window:
            norm(f"blk.{i}.post_attention_norm.weight")
            norm(f"blk.{i}.post_ffw_norm.weight")
            norm(f"blk.{i}.attn_q_norm.weight", embd // heads)
            norm(f"blk.{i}.attn_k_norm.weight", embd // heads)
        weight(f"blk.{i}.attn_q.weight", (embd, embd))
        weight(f"blk.{i}.attn_k.weight", (kv, embd))
        weight(f"blk.{i}.attn_v.weight", (kv, embd))
        weight(f"blk.{i}.attn_output.weight", (embd, embd))
        if experts:
            out.add_tensor(f"blk.{i}.ffn_gate_inp.weight", np.ones((experts, embd), np.float32))
        suffix, several = ("_exps", (experts,)) if experts else ("", ())
        weight(f"blk.{i}.ffn_gate{suffix}.weight", (*several, ff, embd))
        weight(f"blk.{i}.ffn_up{suffix}.weight", (*several, ff, embd))
        weight(f"blk.{i}.ffn_down{suffix}.weight", (*several, embd, ff))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    for name, default in (
        ("layers", 4),
        ("embd", 256),
        ("ff", 1024),
        ("heads", 8),
        ("kv-heads", 4),
        ("context", 8192),
        ("experts", 0),
        ("window", 0),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--type", dest="type_name", default="F16")
    write_model(**vars(parser.parse_args()))
