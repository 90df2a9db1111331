#!/usr/bin/env python3
"""Makes tests/interop/fixtures: tiny random Hugging Face folders written by transformers, and what the oracle says about them in float64.

usage: make_fixtures.py [--check] [NAME ...]      --check: makes them again in a temporary folder and compares with the committed ones
README.md beside this file describes the files. Run it with the Python of scripts/interop_venv.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

import oracle
from variants import later_variants, use_older_dialect, variants

FIXTURES = Path(__file__).parent / "fixtures"
VARIANTS = Path(__file__).parent / "variants"
SIZES = dict(
    vocab_size=41,  # prime: no degree of tensor parallelism divides it
    hidden_size=16,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=24,
    bos_token_id=None,
    eos_token_id=None,
)
LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)
LATENTS = dict(num_key_value_heads=4, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6, pad_token_id=None, tie_word_embeddings=False)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=1.0, mscale=0.7, mscale_all_dim=0.9)
T = 16
ROUTED = ("mixtral", "qwen3_moe", "dots1", "olmoe", "qwen2_moe", "deepseek_v3", "deepseek_v2", "deepseek_v2_groups")
ROUTER_LOSSES = (0.2, 0.3, 0.05)  # coefficients of the loss of each sequence, of that of all tokens, and of the z-loss
BIAS_RATE = 0.02
PACKED = ("gpt2", "llama")  # learned and rotary positions
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=41, n_embd=16, n_inner=24, n_layer=2, n_head=4, n_positions=48, bos_token_id=None, eos_token_id=None
    ),
    # Frequencies 1, 0.1, 0.01, 0.001 with 128 old positions: one is kept, one lies in the transition, two are stretched.
    "llama": lambda: transformers.LlamaConfig(
        **SIZES | dict(max_position_embeddings=256), head_dim=8, tie_word_embeddings=False, rope_parameters=dict(rope_theta=10000.0, **LLAMA3_ROPE)
    ),
    "llama_tied": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "qwen2_window": lambda: transformers.Qwen2Config(
        **SIZES, tie_word_embeddings=True, use_sliding_window=True, sliding_window=3, max_window_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "mistral": lambda: transformers.MistralConfig(
        **SIZES, head_dim=8, sliding_window=5, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "mixtral": lambda: transformers.MixtralConfig(
        **SIZES, head_dim=8, num_local_experts=5, num_experts_per_tok=2, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **SIZES | dict(num_hidden_layers=3),
        head_dim=8,
        num_experts=12,
        num_experts_per_tok=3,
        moe_intermediate_size=8,
        mlp_only_layers=[1],
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0),
    ),
}
CONFIGS |= {
    # Fused tensors; a window shorter than the sequence.
    "phi3": lambda: transformers.Phi3Config(**SIZES, pad_token_id=None, sliding_window=5, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "starcoder2": lambda: transformers.Starcoder2Config(**SIZES, sliding_window=5, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "llama_biases": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=4.0)),
    "qwen3_yarn": lambda: transformers.Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True, rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=8)),
    "phi3_long": lambda: transformers.Phi3Config(
        **SIZES, pad_token_id=None, tie_word_embeddings=False, original_max_position_embeddings=8,
        rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, partial_rotary_factor=0.5, short_factor=[1.0], long_factor=[2.5], original_max_position_embeddings=8)
    ),
    "phi3_short": lambda: transformers.Phi3Config(
        **SIZES | dict(max_position_embeddings=64), pad_token_id=None, tie_word_embeddings=True, original_max_position_embeddings=32,
        rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, short_factor=[1.25, 1.5], long_factor=[2.5, 4.0], original_max_position_embeddings=32)
    ),
    "smollm3": lambda: transformers.SmolLM3Config(**SIZES, pad_token_id=None, no_rope_layer_interval=2, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "ministral3": lambda: transformers.Ministral3Config(
        **SIZES, head_dim=8, pad_token_id=None, tie_word_embeddings=False, sliding_window=None,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=6, beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
    ),
    "olmo2": lambda: transformers.Olmo2Config(**SIZES, pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    "olmo3": lambda: transformers.Olmo3Config(
        **SIZES, pad_token_id=None, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=1000.0),
            full_attention=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=8),
        )
    ),
    "granite": lambda: transformers.GraniteConfig(
        **SIZES, attention_bias=True, tie_word_embeddings=True, embedding_multiplier=3.0, logits_scaling=0.5, residual_multiplier=0.75, attention_multiplier=0.3, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}, rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)),
    "gpt_neox_serial": lambda: transformers.GPTNeoXConfig(
        **{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}, use_parallel_residual=False, hidden_act="gelu_new", rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0)
    ),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES, pad_token_id=None, head_dim=8, sliding_window=5, query_pre_attn_scalar=6, attn_logit_softcapping=1.0, final_logit_softcapping=2.0, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "gemma3_text": lambda: transformers.Gemma3TextConfig(
        **SIZES | dict(num_hidden_layers=3), pad_token_id=None, head_dim=8, sliding_window=5, query_pre_attn_scalar=6, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0), full_attention=dict(rope_type="linear", factor=4.0, rope_theta=1000.0)),
    ),
    "dots1": lambda: transformers.Dots1Config(
        **SIZES | dict(num_hidden_layers=3),
        head_dim=8,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        n_shared_experts=2,
        moe_intermediate_size=8,
        first_k_dense_replace=1,
        routed_scaling_factor=1.5,
        norm_topk_prob=True,
        sliding_window=None,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0),
    ),
}
VISION = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
CONFIGS |= {
    # Models of images and text, of which Echelon trains the language model.
    "gemma3": lambda: transformers.Gemma3Config(
        text_config=SIZES | dict(pad_token_id=None, head_dim=8, sliding_window=5, query_pre_attn_scalar=6, layer_types=["sliding_attention", "full_attention"]),
        vision_config=VISION, mm_tokens_per_image=4, image_token_index=60,
    ),
    "mistral3": lambda: transformers.Mistral3Config(
        text_config=SIZES | dict(model_type="ministral3", head_dim=8, pad_token_id=None, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=6, beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
        vision_config=VISION | dict(model_type="pixtral", head_dim=4, vocab_size=32), image_token_index=60, tie_word_embeddings=False,
    ),
}
# Seeds follow the position, so later ones are behind the variants.
LATER = {
    "olmoe": lambda: transformers.OlmoeConfig(
        **SIZES, pad_token_id=None, num_experts=12, num_experts_per_tok=3, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "qwen2_moe": lambda: transformers.Qwen2MoeConfig(
        **SIZES | dict(num_hidden_layers=3), num_experts=12, num_experts_per_tok=3, moe_intermediate_size=8, shared_expert_intermediate_size=12,
        mlp_only_layers=[1], tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    # Heads of 10 columns, of which 4 are rotary, and values of 6; queries are expanded from a latent, or not.
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **SIZES | LATENTS | dict(num_hidden_layers=3), q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2,
        moe_intermediate_size=8, first_k_dense_replace=1, routed_scaling_factor=1.5, num_mtp_layers=0, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
    "deepseek_v3_dense": lambda: transformers.DeepseekV3Config(
        **SIZES | LATENTS, q_lora_rank=None, rope_interleave=False, rms_norm_eps=1e-4, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        n_shared_experts=1, moe_intermediate_size=8, first_k_dense_replace=2, num_mtp_layers=0, rope_parameters=dict(rope_theta=1000.0, **YARN)
    ),
    "deepseek_v2": lambda: transformers.DeepseekV2Config(
        **SIZES | LATENTS | dict(num_hidden_layers=3), q_lora_rank=None, n_routed_experts=8, num_experts_per_tok=3, topk_method="greedy", n_shared_experts=2,
        moe_intermediate_size=8, first_k_dense_replace=1, rope_parameters=dict(rope_theta=1000.0, **YARN)
    ),
    "deepseek_v2_groups": lambda: transformers.DeepseekV2Config(
        **SIZES | LATENTS, q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3, topk_method="group_limited_greedy", n_group=4, topk_group=2, n_shared_experts=1,
        moe_intermediate_size=8, first_k_dense_replace=0, routed_scaling_factor=3.0, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
    ),
}
ALL = CONFIGS | LATER  # those of tests/interop/fixtures
BIAS = ".e_score_correction_bias"  # no gradient trains it
TRAINING = dict(steps=20, batch=4, lr=1e-2, warmup_steps=5, min_lr_factor=0.1, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_norm=1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of replacing them")
    parser.add_argument("names", nargs="*", help="the fixtures that are made; without names all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    fixtures = [(name, make_config, FIXTURES) for name, make_config in CONFIGS.items()] + [(name, make_config, VARIANTS) for name, make_config in variants(SIZES).items()]
    fixtures += [(name, make_config, FIXTURES) for name, make_config in LATER.items()]
    fixtures += [(name, make_config, VARIANTS) for name, make_config in later_variants(SIZES).items()]
    if not arguments.check:
        for seed, (name, make_config, parent) in enumerate(fixtures):
            if not arguments.names or name in arguments.names:
                make(name, make_config(), seed, parent / name)
        return
    with tempfile.TemporaryDirectory() as folder:
        for seed, (name, make_config, parent) in enumerate(fixtures):
            make(name, make_config(), seed, Path(folder) / name)
            compare_folders(Path(folder) / name, parent / name)


def make(name, model_config, seed, folder):
    model = random_model(model_config, seed)
    if name.endswith("_idle"):
        leave_idle(model)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "llama":
        use_older_rope_keys(folder / "config.json")
    if name == "mistral3":
        use_other_names_of_wrapper(folder / "model.safetensors")
    config, weights = language_model(json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors"))
    tokens, targets = batch(first_sequence=0, num_sequences=2, vocab_size=config["vocab_size"])

    if name.endswith("_older"):  # which the oracle need not read
        use_older_dialect(folder / "config.json")
    compare_with_transformers(name, folder, config, weights, tokens, targets)
    in_float64 = {key: value.double() for key, value in weights.items()}
    value, all_logits, gradients = run(config, in_float64, tokens, targets)
    rates, losses, norms, trained = train(config, in_float64)
    expected = {"tokens": tokens, "targets": targets, "logits": all_logits, "loss": value.reshape(1)}
    expected |= {"grad." + key: gradient for key, gradient in gradients.items()}
    expected |= {"train.lr": rates, "train.loss": losses, "train.grad_norm": norms}
    expected |= {"train.weight." + key: weight for key, weight in trained.items()}
    _, losses_of_documents, norms_of_documents, _ = train(config, in_float64, with_documents=True)
    expected |= {"documents.loss": losses_of_documents, "documents.grad_norm": norms_of_documents}
    save_file({key: tensor.contiguous() for key, tensor in expected.items()}, folder / "expected.safetensors")
    if name in PACKED:
        make_packed(config, in_float64, folder / "packed.safetensors")
    if name in ROUTED:
        make_balanced(config, in_float64, folder / "balanced.safetensors")
    if name.endswith("_idle"):
        require_idle(name, gradients)
    # Training must learn, and clipping must be at work in some steps.
    require(losses[-1] < losses[0] and norms.max() > TRAINING["max_norm"], f"{name}: losses {losses.tolist()}, gradient norms {norms.tolist()}")
    print(f"{name}: loss {value.item():.6f}; trained from {losses[0].item():.6f} to {losses[-1].item():.6f}; norms {norms.min():.3f} to {norms.max():.3f}")


def make_packed(config, weights, path):
    """Loss and gradients of sequences 0 and 1 as packed documents, whose positions start anew and whose last tokens have no target."""
    tokens, targets = batch(first_sequence=0, num_sequences=2, vocab_size=config["vocab_size"])
    documents = documents_of(first_sequence=0, num_sequences=2)
    starts = (documents[:, :, None] == documents[:, None, :]).int().argmax(-1)
    ends = documents != torch.cat((documents[:, 1:], documents[:, -1:] + 1), dim=1)
    targets = targets.masked_fill(ends, oracle.IGNORED)
    positions = torch.arange(T) - starts
    value, _, gradients = run(config, weights, tokens, targets, documents, positions)
    across, _, _ = run(config, weights, tokens, targets, None, positions)  # where rotary positions that start anew matter
    expected = {"loss": value.reshape(1), "loss_across": across.reshape(1)} | {"grad." + key: gradient.contiguous() for key, gradient in gradients.items()}
    save_file(expected, path)


def make_balanced(config, weights, path):
    """The first gradients, and AdamW steps, with the losses of routers."""
    tokens, targets = batch(first_sequence=0, num_sequences=2, vocab_size=config["vocab_size"])
    leaves, _ = optimizer_of(weights)
    routed = []
    value = oracle.loss(oracle.logits(config, weights | leaves, tokens, routed=routed), targets)
    losses, _ = oracle.router_losses(routed, None, ROUTER_LOSSES)
    gradients = torch.autograd.grad(value + sum(losses), list(leaves.values()))
    expected = {"grad." + key: gradient for key, gradient in zip(leaves, gradients)}
    loads, of_routers = None, []
    leaves, optimizer = optimizer_of(weights)
    biases = {key: weight.float() for key, weight in weights.items() if key.endswith(BIAS)}  # in the order of layers
    values, norms, all_loads = [], [], []
    for step in range(1, TRAINING["steps"] + 1):
        tokens, targets = batch((step - 1) * TRAINING["batch"], TRAINING["batch"], config["vocab_size"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        routed = []
        value = oracle.loss(oracle.logits(config, leaves | biases, tokens, routed=routed), targets)
        losses, loads = oracle.router_losses(routed, loads, ROUTER_LOSSES)
        (value + sum(losses)).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(leaves.values()), TRAINING["max_norm"]).item())
        optimizer.step()
        values.append(value.item())
        of_routers.append([loss.item() for loss in losses])
        all_loads.append(loads)
        for key, counts in zip(sorted(biases), loads):
            biases[key] = biases[key] + (BIAS_RATE * (counts.mean() - counts).sign()).float()
    expected |= {key: torch.tensor(numbers, dtype=torch.float64) for key, numbers in (("train.loss", values), ("train.grad_norm", norms), ("train.router_losses", of_routers))}
    expected |= {"train.loads": torch.stack(all_loads), "coefficients": torch.tensor((*ROUTER_LOSSES, BIAS_RATE if biases else 0.0), dtype=torch.float64)}
    expected |= {"train.bias": torch.stack([biases[key] for key in sorted(biases)])} if biases else {}
    save_file({key: tensor.contiguous() for key, tensor in expected.items()}, path)


def random_model(config, seed):
    """Weights, biases and gains that are all random and large enough for every gradient to count."""
    model = auto_class(config).from_config(config, attn_implementation="eager").float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = parameter.dim() == 1 and name.endswith("weight")
            is_one_more = is_gain and config.model_type.startswith("gemma")  # the gain is 1 + weight
            parameter.copy_(1 + 0.2 * noise if is_gain and not is_one_more else 0.2 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith(BIAS):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    return model


def leave_idle(model):
    """The score of expert 0 is the mean of the others, of which several exceed it; where choices have biases, its own is the lowest."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".gate.weight"):
                parameter[0] = parameter[1:].mean(0)
        for name, buffer in model.named_buffers():
            if name.endswith(BIAS):
                buffer[0] = -2


def require_idle(name, gradients):
    """In each layer, the gradients of expert 0 are zero, and those of most others are not."""
    is_zero = {key: not gradient.any().item() for key, gradient in gradients.items() if ".experts." in key}
    chosen = [key for key, zero in is_zero.items() if ".experts.0." in key and not zero]
    require(not chosen, f"{name}: tokens chose the experts of {chosen}")
    require(sum(is_zero.values()) < len(is_zero) / 2, f"{name}: most experts are idle")


def use_older_rope_keys(path):
    """config.json as transformers 4 wrote it and as the published Llama folders have it."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def auto_class(config):
    return transformers.AutoModelForImageTextToText if hasattr(config, "text_config") else transformers.AutoModelForCausalLM


def use_other_names_of_wrapper(path):
    """Both names are published: language_model.model.NAME, as transformers writes it, and model.language_model.NAME."""
    names = {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head."}
    save_file({renamed(key, names, "model." + key): tensor for key, tensor in load_file(path).items()}, path, metadata={"format": "pt"})


def renamed(key, prefixes, other):
    return next((new + key.removeprefix(old) for old, new in prefixes.items() if key.startswith(old)), other)


def language_model(config, weights):
    """The config and the weights of the language model, which may be in a model of images and text."""
    if "text_config" not in config:
        return config, weights
    names = {"language_model.": "", "model.language_model.": "model.", "lm_head.": "lm_head."}
    named = {renamed(key, names, None): tensor for key, tensor in weights.items()}
    return config["text_config"], {key: tensor for key, tensor in named.items() if key}


def batch(first_sequence, num_sequences, vocab_size):
    """Sequences n = first_sequence, ...: token i is (7 i^2 + 3 n i + 11 n + 5) mod V, its target token i + 1, which is ignored where (n + i) mod 5 = 0."""
    n = torch.arange(first_sequence, first_sequence + num_sequences)[:, None]
    i = torch.arange(T + 1)
    text = (7 * i * i + 3 * n * i + 11 * n + 5) % vocab_size
    targets = text[:, 1:].masked_fill((n + i[:-1]) % 5 == 0, oracle.IGNORED)
    return text[:, :-1].int(), targets.int()


def documents_of(first_sequence, num_sequences):
    """The number of each token's document: token i of sequence n begins one where (i + 3 n) mod 7 = 5."""
    n = torch.arange(first_sequence, first_sequence + num_sequences)[:, None]
    return ((torch.arange(T) + 3 * n) % 7 == 5).cumsum(1)


def run(config, weights, tokens, targets, documents=None, positions=None):
    """Loss, logits and the gradient of every weight."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items() if not name.endswith(BIAS)}
    all_logits = oracle.logits(config, weights | leaves, tokens, documents, positions)
    value = oracle.loss(all_logits, targets)
    gradients = torch.autograd.grad(value, list(leaves.values()))
    return value.detach(), all_logits.detach(), dict(zip(leaves, gradients))


def learning_rate(step):
    """Of step 1, 2, ...: linear warm-up, then a cosine that ends at min_lr_factor."""
    warmup, steps, least = TRAINING["warmup_steps"], TRAINING["steps"], TRAINING["min_lr_factor"]
    if step <= warmup:
        return TRAINING["lr"] * step / warmup
    progress = (step - warmup) / (steps - warmup)
    return TRAINING["lr"] * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * progress)))


def optimizer_of(weights):
    """Copies of the weights and their AdamW; matrices decay, norms and biases do not."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items() if not name.endswith(BIAS)}
    groups = [
        dict(params=[w for w in leaves.values() if w.dim() >= 2], weight_decay=TRAINING["weight_decay"]),
        dict(params=[w for w in leaves.values() if w.dim() < 2], weight_decay=0.0),
    ]
    return leaves, torch.optim.AdamW(groups, betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["eps"])


def train(config, weights, with_documents=False):
    """Learning rates, losses before the update and gradient norms before clipping of AdamW steps, and the weights after them."""
    leaves, optimizer = optimizer_of(weights)
    rates, losses, norms = [], [], []
    for step in range(1, TRAINING["steps"] + 1):
        sequences = (step - 1) * TRAINING["batch"], TRAINING["batch"]
        tokens, targets = batch(*sequences, config["vocab_size"])
        documents = documents_of(*sequences) if with_documents else None
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        value = oracle.loss(oracle.logits(config, weights | leaves, tokens, documents), targets)
        value.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(leaves.values()), TRAINING["max_norm"]).item())
        optimizer.step()
        rates.append(learning_rate(step))
        losses.append(value.item())
    return *(torch.tensor(numbers, dtype=torch.float64) for numbers in (rates, losses, norms)), {key: weight.detach() for key, weight in leaves.items()}


def error(a, b, floor=0.0):
    """max |a - b| / max(max |b|, floor)"""
    a, b = a.double(), b.double()
    return ((a - b).abs().max() / max(b.abs().max().item(), floor, 1e-300)).item()


def rms(tensors):
    return math.sqrt(sum(t.double().square().sum().item() for t in tensors) / sum(t.numel() for t in tensors))


def compare_with_transformers(name, folder, config, weights, tokens, targets):
    """The oracle equals transformers in float32, which reads the folder from disk: logits, loss and every gradient."""
    model = auto_class(transformers.AutoConfig.from_pretrained(folder)).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    theirs = dict(model.named_parameters())
    if hasattr(model.config, "text_config"):  # whose loss takes other targets
        their_logits = model(tokens.long()).logits
        their_loss = torch.nn.functional.cross_entropy(their_logits.flatten(0, 1), targets.long().flatten(), ignore_index=oracle.IGNORED)
    else:
        their_loss, their_logits = model(tokens.long(), labels=targets.long(), shift_labels=targets.long()).to_tuple()[:2]
    their_loss.backward()
    theirs = language_model(model.config.to_dict(), {key: parameter.grad for key, parameter in theirs.items()})[1]
    for key in [key for key in theirs if ".experts." in key]:
        theirs |= experts_as_in_files(config, key, theirs.pop(key))
    if config["model_type"] == "mixtral":
        theirs = {key.replace(".mlp.gate.", ".block_sparse_moe.gate."): gradient for key, gradient in theirs.items()}
    if config["model_type"] == "gpt_neox":
        theirs = {key.replace("lm_head.", "embed_out."): gradient for key, gradient in theirs.items()}
    value, ours, gradients = run(config, weights, tokens, targets)
    require(set(gradients) == set(theirs), f"{name}: the weights are {sorted(gradients)}, those of transformers {sorted(theirs)}")
    require(error(ours, their_logits) < 1e-5, f"{name}: logits differ from those of transformers by {error(ours, their_logits):.2e}")
    require(error(value, their_loss) < 1e-5, f"{name}: the loss is {value}, that of transformers {their_loss}")
    floor = rms(gradients.values())
    for key, gradient in gradients.items():
        difference = error(gradient, theirs[key], floor)
        require(difference < 1e-5, f"{name}: the gradient of {key} differs from that of transformers by {difference:.2e}")


def experts_as_in_files(config, key, stacked):
    """transformers stacks the experts of a layer, and gate above up; files have a tensor for each."""
    prefix, kind = key.rsplit(".", 1)
    is_mixtral = config["model_type"] == "mixtral"
    if is_mixtral:
        prefix = prefix.replace(".mlp.", ".block_sparse_moe.")
    names = {"gate_up_proj": ("w1", "w3") if is_mixtral else ("gate_proj", "up_proj"), "down_proj": ("w2",) if is_mixtral else ("down_proj",)}[kind]
    return {f"{prefix}.{e}.{name}.weight": part for e, expert in enumerate(stacked) for name, part in zip(names, expert.chunk(len(names)))}


def compare_folders(made, committed):
    """Configs and weights are equal; float64 results equal up to what another processor may round."""
    require((committed / "config.json").exists(), f"{committed.name} is not committed; run make_fixtures.py without --check")
    configs = [json.loads((folder / "config.json").read_text()) for folder in (made, committed)]
    require(configs[0] == configs[1], f"{made.name}/config.json is {configs[0]}, committed is {configs[1]}")
    files = [("model.safetensors", 0.0), ("expected.safetensors", 1e-12)]
    files += [(more, 1e-12) for more in ("packed.safetensors", "balanced.safetensors") if (committed / more).exists()]
    for file, tolerance in files:
        ours, theirs = load_file(made / file), load_file(committed / file)
        require(set(ours) == set(theirs), f"{made.name}/{file} has {sorted(ours)}, committed is {sorted(theirs)}")
        floor = rms([tensor for key, tensor in theirs.items() if key.startswith("grad.")] or theirs.values())
        for key in ours:
            require(ours[key].shape == theirs[key].shape, f"{made.name}/{file}: {key} is {list(ours[key].shape)}, committed is {list(theirs[key].shape)}")
            difference = error(ours[key], theirs[key], floor)
            allowed = max(tolerance, 1e-9) if key.startswith("train.weight.") else tolerance  # biases of keys follow their rounding
            require(difference <= allowed, f"{made.name}/{file}: {key} differs from the committed one by {difference:.2e}")
    print(f"{made.name}: equals the committed files")


def require(holds, sentence):
    if not holds:
        sys.exit("make_fixtures: " + sentence)


if __name__ == "__main__":
    main()
