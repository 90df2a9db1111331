#!/usr/bin/env python3
"""Makes tests/interop/bfloat16.json: the errors of transformers' logits in bfloat16, as root mean squares over 16 batches, of each fixture:
of all tokens, and of the four fifths of the tokens with the least error. Where rounding changes the choice of an expert, a few tokens have most of the error.

usage: make_bfloat16.py [--check]      --check: makes them again and compares with the committed file

The error is that against the oracle in float64 with the weights rounded to bfloat16. Batch b has sequences 2 b and 2 b + 1 of the fixtures' text.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

import oracle
from make_fixtures import ALL, FIXTURES, auto_class, batch, language_model, require

COMMITTED = Path(__file__).parent / "bfloat16.json"
NUM_BATCHES = 16


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made = {name: rms_errors(FIXTURES / name) for name in ALL}
    if sys.argv[1:] == ["--check"]:
        committed = json.loads(COMMITTED.read_text())
        require(set(committed) == set(made), "bfloat16.json has other fixtures")
        for name, errors in made.items():  # another processor adds in another order
            for part, error in errors.items():
                require(abs(error - committed[name][part]) < 0.05 * error, f"bfloat16.json: the error of {name} is {error}, not {committed[name][part]} ({part})")
        return print("bfloat16.json: equals the errors of transformers")
    if sys.argv[1:]:
        sys.exit(__doc__)
    COMMITTED.write_text(json.dumps(made, indent=0) + "\n")


def rms_errors(folder):
    config, weights = language_model(json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors"))
    weights = {key: (value.bfloat16() if not key.endswith(".e_score_correction_bias") else value).double() for key, value in weights.items()}
    model = auto_class(transformers.AutoConfig.from_pretrained(folder)).from_pretrained(folder, attn_implementation="eager", experts_implementation="eager", dtype=torch.bfloat16).eval()
    squares = []
    for b in range(NUM_BATCHES):
        tokens, _ = batch(2 * b, 2, config["vocab_size"])
        with torch.no_grad():
            squares.append((model(tokens.long()).logits.double() - oracle.logits(config, weights, tokens)).square().mean(dim=-1).flatten())
    squares = torch.cat(squares).sort().values
    kept = squares[: len(squares) * 4 // 5]
    return {"all": float(f"{squares.mean().sqrt().item():.5g}"), "most": float(f"{kept.mean().sqrt().item():.5g}")}



if __name__ == "__main__":
    main()
