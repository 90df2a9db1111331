#!/usr/bin/env python3
"""Makes tests/spec/parameter_counts.txt: how many parameters transformers' models have that have the config.json of Echelon's presets.

usage: count_parameters.py FOLDER [--check]      FOLDER/NAME/config.json, as test_interop writes it to BUILD_DIR/interop/presets; --check: compares with the committed file

Models are made on PyTorch's meta device, without values.
"""

import sys
from pathlib import Path

import torch
import transformers

from make_fixtures import require

COMMITTED = Path(__file__).parents[1] / "spec" / "parameter_counts.txt"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/config.json"))
    require(folders, f"{sys.argv[1]} has no configs; run test_interop first")
    text = "".join(f"{folder.name} {count(folder)}\n" for folder in folders)
    if not sys.argv[2:]:
        return COMMITTED.write_text(text)
    require(text == COMMITTED.read_text(), "parameter_counts.txt is not what transformers counts")
    print(f"parameter_counts.txt: {len(folders)} models have as many parameters in transformers")


def count(folder):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    main()
