"""What is trained on a GPU: the models, how Echelon is told of them, the data, and the arithmetic of a step. Needs nothing but Python."""

import array
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from against_pytorch import cases as on_processors  # noqa: E402

OPTIMIZER = on_processors.OPTIMIZER

# Sizes as published, with room for 4,096 positions: GPT-2 (Radford et al. 2019), Llama 3.2 1B and Llama 3 8B.
MODELS = {
    "gpt2-124m": dict(family="gpt2", layers=12, width=768, heads=12, kv_heads=12, inner=3072, vocab=50257, positions=4096, tied=True),
    "gpt2-1.5b": dict(family="gpt2", layers=48, width=1600, heads=25, kv_heads=25, inner=6400, vocab=50257, positions=4096, tied=True),
    "llama-1b": dict(family="llama", layers=16, width=2048, heads=32, kv_heads=8, inner=8192, vocab=128256, positions=4096, tied=True),
    "llama-8b": dict(family="llama", layers=32, width=4096, heads=32, kv_heads=8, inner=14336, vocab=128256, positions=4096, tied=False),
    "tiny-gpt2": dict(family="gpt2", layers=2, width=32, heads=2, kv_heads=2, inner=64, vocab=101, positions=32, tied=True),
    "tiny-llama": dict(family="llama", layers=2, width=32, heads=4, kv_heads=2, inner=64, vocab=101, positions=32, tied=False),
}
# `batch` sequences of `tokens` tokens are one step, in one microbatch. 8 B parameters with float32 masters, moments and gradients are 150 GB. Moments in
# bfloat16 and masters as remainders, which lose no bit, leave room for all activations on 141 GB.
SMALLER_STATE = dict(moments_dtype="bfloat16", store_param_remainders=True)
# As PyTorch with bfloat16 weights: gradients and moments in bfloat16. It has no masters; Echelon keeps the 2 bytes that a bfloat16 weight lacks.
AS_BFLOAT16_PYTORCH = ["--training.grad_dtype=bfloat16", "--optimizer.moments_dtype=bfloat16", "--optimizer.store_param_remainders=true"]
CASES = {
    "gpt2-124m-1024": dict(model="gpt2-124m", tokens=1024, batch=32),
    "gpt2-124m-4096": dict(model="gpt2-124m", tokens=4096, batch=8),
    "gpt2-1.5b-1024": dict(model="gpt2-1.5b", tokens=1024, batch=16),
    "gpt2-1.5b-4096": dict(model="gpt2-1.5b", tokens=4096, batch=4),
    "llama-1b-1024": dict(model="llama-1b", tokens=1024, batch=16),
    "llama-1b-4096": dict(model="llama-1b", tokens=4096, batch=4),
    "llama-8b-1024": dict(model="llama-8b", tokens=1024, batch=8) | SMALLER_STATE,
    "llama-8b-4096": dict(model="llama-8b", tokens=4096, batch=2) | SMALLER_STATE,
}
DRY_CASES = {
    "tiny-gpt2": dict(model="tiny-gpt2", tokens=16, batch=2),
    "tiny-llama": dict(model="tiny-llama", tokens=16, batch=2) | SMALLER_STATE,
}
ALL_CASES = CASES | DRY_CASES
NUM_SEQUENCES_OF_DATA = 256


def sizes_of(case):
    return MODELS[case["model"]]


def model_section(case):
    s = sizes_of(case)
    norm = "layer_norm_epsilon" if s["family"] == "gpt2" else "rms_norm_eps"
    rope = "" if s["family"] == "gpt2" else "rope_theta = 10000.0\n"
    return f"""[model]
model_type = "{s["family"]}"
hidden_size = {s["width"]}
num_hidden_layers = {s["layers"]}
num_attention_heads = {s["heads"]}
num_key_value_heads = {s["kv_heads"]}
intermediate_size = {s["inner"]}
vocab_size = {s["vocab"]}
max_position_embeddings = {s["positions"]}
{norm} = 1e-5
{rope}tie_word_embeddings = {"true" if s["tied"] else "false"}
"""


def echelon_config(case, steps, tokens, output, machine, device="cuda", dtype="bfloat16", deterministic=True):
    """A config file of `echelon train`: initial weights of its own, every step logged, nothing saved. `tokens`: prefix of the data."""
    o = OPTIMIZER
    logits = f'logits_dtype = "{dtype}"\n' if dtype == "bfloat16" else ""
    moments = f'moments_dtype = "{case["moments_dtype"]}"\n' if dtype == "bfloat16" and "moments_dtype" in case else ""
    moments += "store_param_remainders = true\n" if dtype == "bfloat16" and case.get("store_param_remainders") else ""
    return f"""{model_section(case)}
[checkpoint]
enable = false
[data]
path = "{tokens}"
[training]
device = "{device}"
steps = {steps}
seq_len = {case["tokens"]}
global_batch_size = {case["batch"]}
micro_batch_size = {case["batch"]}
dtype = "{dtype}"
deterministic = {"true" if deterministic else "false"}
{logits}max_norm = {o["max_norm"]}
[optimizer]
lr = {o["lr"]}
beta1 = {o["beta1"]}
beta2 = {o["beta2"]}
eps = {o["eps"]}
weight_decay = {o["weight_decay"]}
{moments}[lr_scheduler]
decay = "none"
[metrics]
machine = "{machine}"
[output]
dir = "{output}"
"""


def write_tokens(vocab, count, prefix, document_tokens=None):
    """PREFIX.bin and PREFIX.idx in Megatron's layout, of 32-bit tokens: one document, or those of so many tokens."""
    draw = random.Random(1)
    tokens = array.array("i", (draw.randrange(vocab) for _ in range(count)))
    pathlib.Path(f"{prefix}.bin").write_bytes(tokens.tobytes())
    size = document_tokens or count
    lengths = [min(size, count - first) for first in range(0, count, size)]
    n = len(lengths)
    index = struct.pack(f"<{n}i{n}q{n + 1}q", *lengths, *(4 * size * i for i in range(n)), *range(n + 1))
    pathlib.Path(f"{prefix}.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, n, n + 1) + index)


def num_parameters(case):
    s = sizes_of(case)
    D, F, C, L = s["width"], s["inner"], s["width"] // s["heads"], s["layers"]
    head = 0 if s["tied"] else s["vocab"] * D
    if s["family"] == "gpt2":
        return L * (4 * D * D + 2 * D * F + 9 * D + F) + (s["vocab"] + s["positions"] + 2) * D + head
    return L * (2 * D * D + 2 * D * s["kv_heads"] * C + 3 * D * F + 2 * D) + (s["vocab"] + 1) * D + head


def flops_per_step(case):
    """Multiplications that a step needs, as in benchmarks/against_pytorch: what is formed again counts once."""
    return on_processors.flops_per_step(dict(case, sizes=sizes_of(case), family=sizes_of(case)["family"]))
