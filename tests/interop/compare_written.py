#!/usr/bin/env python3
"""Loads folders that Echelon wrote in transformers, and compares the logits with those that Echelon computed.

usage: compare_written.py FOLDER       FOLDER/NAME/{config.json, model.safetensors, logits.safetensors (tokens, logits)}, one NAME per fixture
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

from make_fixtures import ALL, auto_class, error

TOLERANCE = 1e-5


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    transformers.logging.disable_progress_bar()
    for name in ALL:
        folder = Path(sys.argv[1]) / name
        if not (folder / "logits.safetensors").exists():
            sys.exit(f"compare_written: {folder} has no logits.safetensors, so Echelon did not write this model")
        ours = load_file(folder / "logits.safetensors")
        model, info = auto_class(transformers.AutoConfig.from_pretrained(folder)).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
        if info["missing_keys"] or info["unexpected_keys"]:
            sys.exit(f"compare_written: {name} lacks {sorted(info['missing_keys'])} and has too much: {sorted(info['unexpected_keys'])}")
        with torch.no_grad():
            difference = error(ours["logits"], model.eval()(ours["tokens"].long()).logits)
        if not difference < TOLERANCE:
            sys.exit(f"compare_written: the logits of {name} differ from those of transformers by {difference:.2e}")
        print(f"{name}: transformers has the same logits, up to {difference:.1e}")


if __name__ == "__main__":
    main()
