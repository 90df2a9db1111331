#!/usr/bin/env python3
"""Makes tests/nn/rope_frequencies.csv: the frequencies and attention factors of transformers for each kind of RoPE, its code run in float64.

usage: make_rope_frequencies.py      rope_tables_test.cpp has the same settings
"""

from pathlib import Path

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FILE = Path(__file__).parent / "rope_frequencies.csv"
BASE = dict(rope_theta=500000.0, original_max_position_embeddings=4096)
EIGHT = [1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.5, 8.0]
CASES = {  # of heads of 32 columns, with 32,768 positions: the length of the sequences, and rope_parameters
    "linear": (1024, dict(rope_type="linear", factor=2.5)),
    "dynamic": (32768, dict(rope_type="dynamic", factor=4.0)),
    "llama3": (1024, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)),
    "yarn": (1024, dict(rope_type="yarn", factor=8.0)),
    "yarn with fractions": (1024, dict(rope_type="yarn", factor=8.0, truncate=False, beta_fast=20.0, beta_slow=2.0)),
    "yarn with mscale": (1024, dict(rope_type="yarn", factor=40.0, mscale=1.0, mscale_all_dim=0.5)),
    "yarn with a factor": (1024, dict(rope_type="yarn", factor=8.0, attention_factor=1.25)),
    "longrope, short": (4096, dict(rope_type="longrope", factor=8.0, partial_rotary_factor=0.5, short_factor=EIGHT, long_factor=EIGHT[::-1])),
    "longrope, long": (4097, dict(rope_type="longrope", factor=8.0, partial_rotary_factor=0.5, short_factor=EIGHT, long_factor=EIGHT[::-1])),
}


def main():
    torch.float = torch.float32 = torch.float64  # the precision that the functions name
    torch.Tensor.float = torch.Tensor.double
    lines = []
    for name, (seq_len, parameters) in CASES.items():
        config = transformers.LlamaConfig(
            hidden_size=64, num_attention_heads=2, head_dim=32, max_position_embeddings=32768, rope_parameters=BASE | parameters
        )
        frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, device="cpu", seq_len=seq_len)
        lines.append(";".join([name, f"{factor:.17g}"] + [f"{value:.17g}" for value in frequencies.tolist()]))
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
