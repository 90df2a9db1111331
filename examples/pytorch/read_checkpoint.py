# Reads a checkpoint of Echelon into tensors of PyTorch: python3 read_checkpoint.py FOLDER lists them.
# Needs torch and safetensors. The format: docs/reference/checkpoints.md.
import glob
import json
import sys

import torch
from safetensors import safe_open


def read_checkpoint(folder):
    """Returns the scalars and {state: {parameter: tensor}} of a step's folder."""
    path = max(glob.glob(f"{folder}/attempt-*-manifest.json"))
    manifest = json.load(open(path))["manifest"]
    assert manifest["format"] == 1 and set(manifest["requires"]) <= {"parameter_states"}
    sizes = {name: dims for name, dims, *states in manifest["parameters"]}
    states = {state: {} for state in manifest["states"]}
    for file in manifest["files"]:
        with safe_open(f"{folder}/{file['name']}", framework="pt") as tensors:
            for name in tensors.keys():
                state, _, rest = name.partition("/")
                parameter, _, place = rest.rpartition("@")
                if parameter not in sizes:
                    continue
                part = tensors.get_tensor(name)
                whole = states[state].setdefault(parameter, torch.empty(sizes[parameter], dtype=part.dtype))
                matrix = whole if whole.dim() == 1 else whole.flatten(0, -2)  # of stacked experts one below the other
                matrix[tuple(slice(*map(int, dim.split(":"))) for dim in place.split(","))] = part
    return manifest["scalars"], states


if __name__ == "__main__":
    scalars, states = read_checkpoint(sys.argv[1])
    print(f"step {scalars['step']}")
    for state, tensors in states.items():
        for name, tensor in tensors.items():
            print(state, name, tuple(tensor.shape), tensor.double().sum().item())
