#!/usr/bin/env python3
"""Makes tests/interop/fixtures/MODEL/lora: an adapter that PEFT wrote for MODEL, and what PEFT's training and merging of it give in float64. MODEL/lora_saved: one with modules_to_save.

usage: make_lora_fixtures.py [--check]            --check: makes them again in a temporary folder and compares with the committed ones
       make_lora_fixtures.py --written FOLDER     FOLDER/MODEL/lora: adapters that Echelon wrote; PEFT reads and writes them with the same bits
README.md next to this file describes the files. Run it with the Python of scripts/interop_venv.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import peft
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from make_fixtures import FIXTURES, TRAINING, auto_class, batch, error, learning_rate, require

ADAPTERS = {
    "llama/lora": dict(r=3, lora_alpha=6, target_modules="all-linear"),
    "gpt2/lora": dict(r=2, lora_alpha=5, target_modules="all-linear", fan_in_fan_out=True),
    "phi3/lora": dict(r=4, lora_alpha=4, target_modules=["qkv_proj", "down_proj"], use_rslora=True),
    "gpt_neox/lora": dict(r=2, lora_alpha=3, target_modules=["query_key_value", "dense_h_to_4h"]),
    "gemma2/lora": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "o_proj"], use_rslora=True),
    # Of mixtures: PEFT takes gate_proj, up_proj and down_proj for routed experts, but in qwen2_moe for those of the dense layer and the shared expert.
    "qwen2_moe/lora": dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "qwen2_moe/lora_saved": dict(r=3, lora_alpha=4, target_modules=["q_proj", "o_proj", "down_proj"], modules_to_save=["lm_head", "post_attention_layernorm", "shared_expert"]),
    "mixtral/lora": dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "o_proj"], use_rslora=True),
    "olmoe/lora": dict(r=2, lora_alpha=3, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "deepseek_v3/lora": dict(r=2, lora_alpha=4, target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]),
    "deepseek_v3_dense/lora": dict(r=3, lora_alpha=6, target_modules=["q_proj", "kv_a_proj_with_mqa", "o_proj"]),
    # PEFT ties the head of gpt2 by its name, and then writes transformer.wte in its place.
    "llama/lora_saved": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head", "embed_tokens", "input_layernorm"]),
    "gpt2/lora_saved": dict(r=2, lora_alpha=5, target_modules="all-linear", modules_to_save=["lm_head", "wpe", "c_fc", "ln_f"], ensure_weight_tying=True, fan_in_fan_out=True),
    "phi3/lora_saved": dict(r=3, lora_alpha=4, target_modules=["qkv_proj", "down_proj"], modules_to_save=["gate_up_proj", "model.norm"], use_rslora=True),
    "gpt_neox/lora_saved": dict(r=2, lora_alpha=3, target_modules=["dense_h_to_4h"], modules_to_save=["lm_head", "attention", "final_layer_norm"]),
    "gemma2/lora_saved": dict(r=2, lora_alpha=4, target_modules="all-linear", modules_to_save=["norm", "mlp", "embed_tokens"], ensure_weight_tying=True),
    # Of a model of images and text the language model alone, which names would not say.
    "gemma3/lora": dict(r=2, lora_alpha=4, target_modules=r".*language_model.*\.(q_proj|v_proj|down_proj)", use_rslora=True),
    "gemma3/lora_saved": dict(r=2, lora_alpha=3, target_modules=r".*language_model.*_proj", modules_to_save=["language_model.norm", "embed_tokens"], ensure_weight_tying=True),
    "mistral3/lora_saved": dict(r=3, lora_alpha=3, target_modules=r".*language_model\.layers\.\d+\.mlp\.\w+_proj", modules_to_save=["lm_head", "language_model.norm", "post_attention_layernorm"]),
}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--written", type=Path)
    arguments = parser.parse_args()
    if arguments.written:
        for name in ADAPTERS:
            read_written(name, arguments.written / name)
        return
    compute_in_float64()
    for name, options in ADAPTERS.items():
        if not arguments.check:
            make(name, options, FIXTURES / name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            make(name, options, Path(folder))
            compare(name, Path(folder), FIXTURES / name)


def compute_in_float64():
    """transformers computes norms, RoPE and softmax in float32 whatever the model's dtype is. Here that means float64."""

    def wider(dtype):
        return torch.float64 if dtype == torch.float32 else dtype

    to, softmax, arange = torch.Tensor.to, F.softmax, torch.arange
    torch.Tensor.to = lambda x, *args, **named: to(x, *[wider(arg) for arg in args], **{key: wider(value) for key, value in named.items()})
    torch.Tensor.float = lambda x: to(x, torch.float64)
    torch.Tensor.type = lambda x, dtype: to(x, wider(dtype))
    torch.arange = lambda *args, **named: arange(*args, **{key: wider(value) for key, value in named.items()})
    F.softmax = lambda x, dim=None, dtype=None: softmax(x, dim=dim, dtype=wider(dtype))


def make(name, options, folder):
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float32)
    base = loader_of(name).from_pretrained(base_of(name), attn_implementation="eager", experts_implementation="eager", dtype=torch.float64).eval()
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **options), autocast_adapter_dtype=False)
    trained = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    with torch.no_grad():
        for parameter in trained.values():
            parameter.copy_(parameter.to(torch.float16))  # values that every format of a file has
    torch.set_default_dtype(torch.float64)  # of a quotient of two positions
    tokens, targets = batch(0, 2, base.config.get_text_config().vocab_size)
    logits = model(tokens.long()).logits
    if "modules_to_save" not in options:  # else the rounded copies differ from the base
        expected = load_file(base_of(name) / "expected.safetensors")
        require(error(logits, expected["logits"]) < 1e-12, f"{name}: PEFT's logits differ from the oracle's by {error(logits, expected['logits']):.2e}")
    values = train(model, list(trained.values()), base.config.get_text_config().vocab_size, folder)
    values["logits"] = model(tokens.long()).logits.detach()
    values |= {f"trained.{plain(key)}": parameter.detach().clone() for key, parameter in trained.items()}
    values["merged.logits"] = model.merge_and_unload()(tokens.long()).logits.detach()
    save_file({key: value.contiguous() for key, value in values.items()}, folder / "expected.safetensors")


def base_of(name):
    return FIXTURES / Path(name).parent


def loader_of(name):
    return auto_class(transformers.AutoConfig.from_pretrained(base_of(name)))


def plain(key):
    return key.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def train(model, parameters, vocab_size, folder):
    """20 steps, as make_fixtures.py trains the whole model. Writes the adapter before the first one."""
    write(model, folder)
    groups = [{"params": [p for p in parameters if (p.dim() > 1) == decays], "weight_decay": 0.1 if decays else 0.0} for decays in (True, False)]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0, betas=(0.9, 0.95), eps=1e-8)
    rates, losses, norms = [], [], []
    for step in range(1, TRAINING["steps"] + 1):
        tokens, targets = batch((step - 1) * TRAINING["batch"], TRAINING["batch"], vocab_size)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        logits = model(tokens.long()).logits
        value = F.cross_entropy(logits.flatten(0, 1), targets.long().flatten(), ignore_index=-100)
        value.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, TRAINING["max_norm"]).item())
        optimizer.step()
        rates.append(learning_rate(step))
        losses.append(value.item())
    return {f"train.{key}": torch.tensor(numbers, dtype=torch.float64) for key, numbers in (("lr", rates), ("loss", losses), ("grad_norm", norms))}


def write(model, folder):
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = ".."
    if not isinstance(config["target_modules"], str):
        config["target_modules"] = sorted(config["target_modules"])
    config["modules_to_save"] = sorted(config["modules_to_save"]) if config["modules_to_save"] else None
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file({key: value.to(torch.float32) if value.dtype == torch.float64 else value for key, value in float32_of(tensors).items()}, folder / "adapter_model.safetensors", {"format": "pt"})


def float32_of(tensors):
    return {key: torch.from_numpy(value.numpy().astype("float32")) for key, value in tensors.items()}


def compare(name, made, committed):
    require((committed / "adapter_config.json").exists(), f"{name} is not committed; run make_lora_fixtures.py without --check")
    configs = [json.loads((folder / "adapter_config.json").read_text()) for folder in (made, committed)]
    require(configs[0] == configs[1], f"{name}/adapter_config.json is {configs[0]}, committed is {configs[1]}")
    for file, tolerance in (("adapter_model.safetensors", 0.0), ("expected.safetensors", 1e-12)):
        ours, theirs = load_file(made / file), load_file(committed / file)
        require(set(ours) == set(theirs), f"{name}/{file} has {sorted(ours)}, committed is {sorted(theirs)}")
        for key in ours:
            require(error(ours[key], theirs[key]) <= tolerance, f"{name}/{file}: {key} differs from the committed one")
    print(f"{name}: equals the committed files")


def read_written(name, folder):
    """PEFT reads every tensor of an adapter that Echelon wrote, without a warning, and writes the same bits."""
    base = loader_of(name).from_pretrained(base_of(name), dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, folder)
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        theirs, ours = load_file(Path(again) / "adapter_model.safetensors"), load_file(folder / "adapter_model.safetensors")
    require(set(ours) == set(theirs), f"{name}: Echelon wrote {sorted(ours)}, PEFT {sorted(theirs)}")
    require(all(torch.equal(ours[key], theirs[key]) for key in ours), f"{name}: PEFT changed values")
    logits = load_file(folder / "logits.safetensors") if (folder / "logits.safetensors").exists() else None
    if logits:
        difference = error(model(logits["tokens"].long()).logits, logits["logits"])
        require(difference < 1e-5, f"{name}: PEFT's logits differ from Echelon's by {difference:.2e}")
    print(f"{name}: PEFT reads the adapter and writes it with the same bits")


if __name__ == "__main__":
    main()
