"""Continues a run of Echelon in PyTorch: a model of transformers and its AdamW, with the state of a checkpoint.

    echelon convert out/checkpoint/step-100 hf
    python3 resume_in_pytorch.py out/checkpoint/step-100 hf     # lists what was loaded

Needs torch, transformers and safetensors. Import load() to train on: the scalars say how many sequences were read.
"""

import glob
import json
import sys
import tomllib

import torch
import transformers
from read_checkpoint import read_checkpoint

# Of GPT-2: names of transformers, those of Echelon, and whether the matrix is transposed there.
GPT2_LAYER = [("ln_1", ["input_layernorm"], False), ("ln_2", ["post_attention_layernorm"], False),
              ("attn.c_attn", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], True),
              ("attn.c_proj", ["self_attn.o_proj"], True), ("mlp.c_fc", ["mlp.up_proj"], True), ("mlp.c_proj", ["mlp.down_proj"], True)]
GPT2 = {"wte.weight": "model.embed_tokens.weight", "wpe.weight": "model.embed_positions.weight",
        "ln_f.weight": "model.norm.weight", "ln_f.bias": "model.norm.bias"}


def tensor_for(name, tensors):
    """The tensor of a parameter of transformers, out of Echelon's tensors of one state."""
    if not name.startswith("transformer."):
        return tensors[name]
    name = name.removeprefix("transformer.")
    if name in GPT2:
        return tensors[GPT2[name]]
    _, layer, rest = name.split(".", 2)
    module, kind = rest.rsplit(".", 1)
    parts, is_transposed = next((parts, transposed) for known, parts, transposed in GPT2_LAYER if known == module)
    whole = torch.cat([tensors[f"model.layers.{layer}.{part}.{kind}"] for part in parts])
    return whole.T if is_transposed and kind == "weight" else whole


def load(step_folder, model_folder):
    """Returns the model, its optimizer and the scalars of a checkpoint. `model_folder` gives the config.json."""
    scalars, states = read_checkpoint(step_folder)
    manifest = json.load(open(max(glob.glob(f"{step_folder}/attempt-*-manifest.json"))))["manifest"]
    keys = tomllib.loads(manifest["config"])["optimizer"]
    config = transformers.AutoConfig.from_pretrained(model_folder)
    dtype = next(iter(states["weight"].values())).dtype  # float32, or float64 in runs of that
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    parameters = dict(model.named_parameters())  # a tied head is not among them
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensor_for(name, states["weight"]))
    # Weight decay applies to matrices, not to norms and biases.
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": keys["weight_decay"]},
              {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=keys["lr"], betas=(keys["beta1"], keys["beta2"]), eps=keys["eps"])
    num_updates = scalars["step"] - scalars["skipped_steps"]
    for name, parameter in parameters.items():
        moments = {state: tensor_for(name, states[state]).to(dtype).clone() for state in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.tensor(float(num_updates)), **moments}
    return model, optimizer, scalars


if __name__ == "__main__":
    model, optimizer, scalars = load(sys.argv[1], sys.argv[2])
    print(f"step {scalars['step']}, {scalars['sequences']} sequences of {scalars['seq_len']} tokens read")
    for name, parameter in model.named_parameters():
        moments = optimizer.state[parameter]
        print(name, tuple(parameter.shape), parameter.norm().item(), moments["exp_avg"].norm().item(), moments["exp_avg_sq"].norm().item())
