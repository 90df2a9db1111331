#!/usr/bin/env python3
"""Makes tests/nn/transformers_gradients.csv: what transformers computes for tiny models of families that bring a mechanism, in float32.

usage: make_transformers_gradients.py [--check]      --check: compares with the committed file
Weights and tokens are formulas, which transformers_test.cpp has too. Of each gradient the file has its norm and its products with two
vectors, in place of all its values. Run it with the Python of scripts/interop_venv.
"""

import argparse
import math
import sys
from pathlib import Path

import torch
import transformers

FILE = Path(__file__).parent / "transformers_gradients.csv"
B, T, V, D, F, HEADS, KV_HEADS, HEAD_DIM = 2, 8, 41, 16, 20, 4, 2, 6
SIZES = dict(
    vocab_size=V, hidden_size=D, intermediate_size=F, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
    max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None, attn_implementation="eager", tie_word_embeddings=False,
)
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=4, beta_fast=1.0, beta_slow=0.1)
LONGROPE = dict(
    rope_type="longrope", rope_theta=100.0, original_max_position_embeddings=6, short_factor=[1.0, 2.0, 3.0],
    long_factor=[1.5, 4.0, 6.0], partial_rotary_factor=0.75,
)
LAYER_TYPES = ["sliding_attention", "full_attention"]
PLAIN = dict(rope_type="default", rope_theta=100.0)
ADDS_ONE = ("gemma2", "gemma3")


def config_of(name):
    t = transformers
    if name == "llama_yarn":
        return t.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=YARN | dict(truncate=False))
    if name == "gemma2":
        return t.Gemma2Config(
            **SIZES | dict(tie_word_embeddings=True), query_pre_attn_scalar=5, sliding_window=3, attn_logit_softcapping=0.9,
            final_logit_softcapping=1.5, rope_parameters=PLAIN,
        )
    if name == "gemma3":
        rope = dict(full_attention=dict(rope_type="linear", factor=2.0, rope_theta=100.0), sliding_attention=dict(rope_type="default", rope_theta=10.0))
        return t.Gemma3TextConfig(
            **SIZES | dict(tie_word_embeddings=True), query_pre_attn_scalar=5, sliding_window=3, layer_types=LAYER_TYPES, rope_parameters=rope
        )
    if name == "olmo2":
        return t.Olmo2Config(**without_head_dim(), rope_parameters=PLAIN)
    if name == "granite":
        return t.GraniteConfig(
            **without_head_dim(), embedding_multiplier=2.5, residual_multiplier=0.4, attention_multiplier=0.3, logits_scaling=1.7, rope_parameters=PLAIN
        )
    if name == "gpt_neox":
        sizes = {key: value for key, value in without_head_dim().items() if key != "num_key_value_heads"}
        return t.GPTNeoXConfig(**sizes, hidden_act="gelu", use_parallel_residual=True, rope_parameters=PLAIN | dict(partial_rotary_factor=0.5))
    if name == "phi3":
        return t.Phi3Config(
            **without_head_dim() | dict(num_attention_heads=2, num_key_value_heads=1), rope_parameters=LONGROPE, original_max_position_embeddings=6
        )
    if name == "ministral3":
        return t.Ministral3Config(**SIZES, sliding_window=None, rope_parameters=YARN | dict(truncate=True, llama_4_scaling_beta=0.3))
    if name == "smollm3":
        return t.SmolLM3Config(**without_head_dim(), no_rope_layers=[1, 0], rope_parameters=PLAIN)
    return t.Starcoder2Config(**without_head_dim(), hidden_act="gelu", use_bias=True, sliding_window=None, rope_parameters=PLAIN)


NAMES = ("llama_yarn", "gemma2", "gemma3", "olmo2", "granite", "gpt_neox", "ministral3", "phi3", "smollm3", "starcoder2")


def without_head_dim():
    return {key: value for key, value in SIZES.items() if key != "head_dim"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of replacing it")
    arguments = parser.parse_args()
    rows = [row for name in NAMES for row in rows_of(name)]
    if not arguments.check:
        FILE.write_text("".join(f"{model},{tensor},{','.join(f'{value:.9g}' for value in values)}\n" for model, tensor, values in rows))
        return
    for line, (model, tensor, values) in zip(FILE.read_text().splitlines(), rows, strict=True):
        committed = [float(value) for value in line.split(",")[2:]]
        if any(abs(a - b) > 1e-5 * max(1.0, values[-1]) for a, b in zip(committed, values)):
            sys.exit(f"{model} {tensor}: {committed} in the file, {values} of transformers {transformers.__version__}")


def rows_of(name):
    config = config_of(name)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    places = {}  # of every parameter of Echelon: the tensor of transformers, and a view of a tensor like it
    for key, parameter in model.named_parameters():
        for ours, view in parts_of(name, key):
            places[ours] = (parameter, view)
    with torch.no_grad():
        for ours, (parameter, view) in places.items():
            part = view(parameter.data)
            part.copy_(weights(name, ours, part.numel()).reshape(part.shape))
    token = lambda b, i: (7 * i * i + 3 * b * i + 11 * b + 5) % V
    tokens = torch.tensor([[token(b, i) for i in range(T)] for b in range(B)])
    targets = torch.tensor([[-100 if (b + i) % 5 == 0 else token(b, i + 1) for i in range(T)] for b in range(B)])
    logits = model(tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, V).float(), targets.reshape(-1), ignore_index=-100, reduction="sum")
    loss.backward()
    yield name, "loss", [loss.item()]
    for ours, (parameter, view) in sorted(places.items()):
        gradient = view(parameter.grad).reshape(-1).double()
        i = torch.arange(gradient.numel(), dtype=torch.float64)
        yield name, ours, [(gradient * torch.sin(1.3 * i)).sum().item(), (gradient * torch.cos(0.9 * i)).sum().item(), gradient.norm().item()]


def weights(name, ours, count):
    start = sum((k + 1) * ord(c) for k, c in enumerate(ours)) % 997
    i = torch.arange(count, dtype=torch.float64)
    values = torch.sin(0.013 * i * i + 0.7 * i + start)
    if "norm" in ours and ours.endswith("weight"):
        return (0.0 if name in ADDS_ONE else 1.0) + 0.2 * values
    return (0.1 if ours.endswith("bias") else 0.4) * values


def parts_of(name, key):
    """Echelon's names of a tensor of transformers, and the parts of it that they are."""
    if name == "gpt_neox":
        key = neox_name(key)
        if "query_key_value" in key:
            C = D // HEADS
            return [
                (key.replace("query_key_value", f"{of}_proj"), lambda x, j=j: x.view(HEADS, 3, C, *x.shape[1:])[:, j]) for j, of in enumerate("qkv")
            ]
    if name == "phi3" and "qkv_proj" in key:
        Q, K = D, D // 2
        return [(key.replace("qkv_proj", f"{of}_proj"), lambda x, a=a, n=n: x[a : a + n]) for of, a, n in (("q", 0, Q), ("k", Q, K), ("v", Q + K, K))]
    if name == "phi3" and "gate_up_proj" in key:
        return [(key.replace("gate_up_proj", of), lambda x, a=a: x[a : a + F]) for of, a in (("gate_proj", 0), ("up_proj", F))]
    return [(key.replace("mlp.c_fc", "mlp.up_proj").replace("mlp.c_proj", "mlp.down_proj"), lambda x: x)]


def neox_name(key):
    for theirs, ours in (
        ("gpt_neox.embed_in", "model.embed_tokens"), ("gpt_neox.final_layer_norm", "model.norm"), ("gpt_neox.", "model."), ("embed_out", "lm_head"),
        ("attention.dense.", "self_attn.o_proj."), ("attention.query", "self_attn.query"), ("dense_h_to_4h", "up_proj"), ("dense_4h_to_h", "down_proj"),
    ):
        key = key.replace(theirs, ours)
    return key


if __name__ == "__main__":
    main()
