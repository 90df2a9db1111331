"""What is trained: the models, how both sides are told of them, the data, and the arithmetic of one step. Needs nothing but Python."""

import array
import json
import math
import pathlib
import random
import struct

# Sizes as in the papers; `batch` sequences of `tokens` tokens are one step, in one microbatch.
GPT2_124M = dict(layers=12, width=768, heads=12, kv_heads=12, inner=3072, vocab=50257, positions=1024)
CASES = {
    "small": dict(family="gpt2", sizes=dict(layers=6, width=384, heads=6, kv_heads=6, inner=1536, vocab=8192, positions=256), tokens=256, batch=16),
    "gpt2-b1": dict(family="gpt2", sizes=GPT2_124M, tokens=1024, batch=1),
    "gpt2-b4": dict(family="gpt2", sizes=GPT2_124M, tokens=1024, batch=4),
    "llama": dict(
        family="llama", sizes=dict(layers=12, width=768, heads=12, kv_heads=4, inner=2048, vocab=32000, positions=2048), tokens=2048, batch=1
    ),
}
DESCRIPTIONS = {
    "small": "GPT-2, 6 layers of 384, vocabulary 8192, T=256, B=16",
    "gpt2-b1": "GPT-2 124M, T=1024, B=1",
    "gpt2-b4": "GPT-2 124M, T=1024, B=4",
    "llama": "Llama 100M (GQA 12/4, SwiGLU, tied), T=2048, B=1",
}
# Mixtures of experts: few large experts, many small ones, and these with few tokens each.
MIXTURE = dict(layers=6, width=512, heads=8, kv_heads=8, vocab=8192, positions=512)
CASES["mixture-8"] = dict(family="mixtral", sizes=MIXTURE | dict(inner=1792, experts=8, chosen=2), tokens=512, batch=8)
CASES["mixture-64"] = dict(family="mixtral", sizes=MIXTURE | dict(inner=192, experts=64, chosen=8), tokens=512, batch=8)
CASES["mixture-64-few"] = CASES["mixture-64"] | dict(tokens=256, batch=2)
DESCRIPTIONS |= {
    "mixture-8": "6 layers of 512, 8 experts of 1792, k=2, T=512, B=8",
    "mixture-64": "6 layers of 512, 64 experts of 192, k=8, T=512, B=8",
    "mixture-64-few": "6 layers of 512, 64 experts of 192, k=8, T=256, B=2",
}
# Long sequences, for the scaling of context parallelism.
CASES["llama-8k"] = CASES["llama"] | dict(sizes=CASES["llama"]["sizes"] | dict(positions=8192), tokens=8192)
DESCRIPTIONS["llama-8k"] = "Llama 100M (GQA 12/4, SwiGLU, tied), T=8192, B=1"
# Also for the smoke test: everything of a step in a fraction of a second.
CASES["tiny-gpt2"] = dict(family="gpt2", sizes=dict(layers=2, width=32, heads=2, kv_heads=2, inner=128, vocab=101, positions=32), tokens=32, batch=2)
CASES["tiny-llama"] = dict(family="llama", sizes=dict(layers=2, width=32, heads=4, kv_heads=2, inner=64, vocab=101, positions=32), tokens=32, batch=2)
CASES["tiny-mixture"] = dict(family="mixtral", sizes=CASES["tiny-llama"]["sizes"] | dict(experts=4, chosen=2), tokens=32, batch=2)
DESCRIPTIONS |= {"tiny-gpt2": "a tiny GPT-2", "tiny-llama": "a tiny Llama", "tiny-mixture": "a tiny mixture"}

OPTIMIZER = dict(lr=3e-4, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_norm=1.0)  # decay of matrices and tables alone, as Echelon does it
NUM_STEPS_OF_DATA = 64


def hugging_face_config(case):
    s = case["sizes"]
    if case["family"] == "gpt2":
        return dict(
            model_type="gpt2", architectures=["GPT2LMHeadModel"], activation_function="gelu_new", n_embd=s["width"], n_layer=s["layers"],
            n_head=s["heads"], n_inner=s["inner"], n_positions=s["positions"], vocab_size=s["vocab"], layer_norm_epsilon=1e-5, initializer_range=0.02,
            tie_word_embeddings=True,
        )  # fmt: skip
    mixture = case["family"] == "mixtral"
    of_mixture = dict(num_local_experts=s["experts"], num_experts_per_tok=s["chosen"], sliding_window=None) if mixture else dict(attention_bias=False, mlp_bias=False)
    return of_mixture | dict(
        model_type=case["family"], architectures=["MixtralForCausalLM" if mixture else "LlamaForCausalLM"], hidden_act="silu", hidden_size=s["width"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], num_key_value_heads=s["kv_heads"], head_dim=s["width"] // s["heads"], intermediate_size=s["inner"],
        max_position_embeddings=s["positions"], vocab_size=s["vocab"], rms_norm_eps=1e-5, rope_theta=10000.0, initializer_range=0.02,
        tie_word_embeddings=True,
    )  # fmt: skip


def echelon_config(case, dtype, folder, steps):
    """A config file of `echelon train`: the weights and tokens of `folder`, every step logged, nothing saved."""
    o = OPTIMIZER
    return f"""[model]
path = "{folder}"
[checkpoint]
enable = false
initial_load_path = "{folder}"
[data]
path = "{folder}/tokens"
[training]
steps = {steps}
seq_len = {case["tokens"]}
global_batch_size = {case["batch"]}
micro_batch_size = {case["batch"]}
dtype = "{dtype}"
max_norm = {o["max_norm"]}
[optimizer]
lr = {o["lr"]}
beta1 = {o["beta1"]}
beta2 = {o["beta2"]}
eps = {o["eps"]}
weight_decay = {o["weight_decay"]}
[lr_scheduler]
decay = "none"
"""


def write_tokens(case, folder):
    """tokens.bin and tokens.idx in Megatron's layout: one document of 32-bit tokens, enough that no sequence comes twice."""
    count = NUM_STEPS_OF_DATA * case["batch"] * case["tokens"] + 1
    draw = random.Random(1)
    tokens = array.array("i", (draw.randrange(case["sizes"]["vocab"]) for _ in range(count)))
    pathlib.Path(folder, "tokens.bin").write_bytes(tokens.tobytes())
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2) + struct.pack("<iq2q", count, 0, 0, 1)
    pathlib.Path(folder, "tokens.idx").write_bytes(index)


def batch(case, folder, step):
    """Tokens and targets of step 0, 1, ... as flat lists: the sequences that Echelon trains on, in its order (data.seed = 0)."""
    T, B = case["tokens"], case["batch"]
    raw = pathlib.Path(folder, "tokens.bin")
    windows = NUM_STEPS_OF_DATA * B
    tokens, targets = array.array("i"), array.array("i")
    with raw.open("rb") as file:
        for sequence in range(step * B, step * B + B):
            file.seek(4 * T * permuted(sequence, windows, mix(0, 0)))
            window = array.array("i")
            window.frombytes(file.read(4 * (T + 1)))
            tokens += window[:-1]
            targets += window[1:]
    return tokens, targets


def mix(a, b):
    """The order of the data (src/data/permutation.h): SplitMix64's finalizer, and a Feistel network walked until it lands in the range."""
    golden, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    z = (a * golden + b + golden) & mask
    for _ in range(2):
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
    return z


def permuted(index, size, key):
    half = ((size - 1).bit_length() + 1) // 2
    while True:
        left, right = index >> half, index & ((1 << half) - 1)
        for r in range(8):
            left, right = right, left ^ (mix(key + r, right) & ((1 << half) - 1))
        index = left << half | right
        if index < size:
            return index


def num_parameters(case):
    s = case["sizes"]
    D, F, C, L = s["width"], s["inner"], s["width"] // s["heads"], s["layers"]
    if case["family"] == "gpt2":
        return L * (4 * D * D + 2 * D * F + 9 * D + F) + (s["vocab"] + s["positions"] + 2) * D
    E = s.get("experts", 1)
    return L * (2 * D * D + 2 * D * s["kv_heads"] * C + 3 * E * D * F + (E * D if E > 1 else 0) + 2 * D) + (s["vocab"] + 1) * D


def flops_per_step(case):
    """Multiplications that a step needs: 6 per weight of a matrix and token, and attention's two products, thrice, over what the causal mask leaves. The head
    counts, the embedding's look-up does not; what one side computes twice counts once. Of experts those count that are chosen."""
    s = case["sizes"]
    D, C = s["width"], s["width"] // s["heads"]
    inner = D * s["inner"] * (2 if case["family"] == "gpt2" else 3) * s.get("chosen", 1) + D * s.get("experts", 0)
    matrices = s["layers"] * (2 * D * D + 2 * D * s["kv_heads"] * C + inner) + s["vocab"] * D
    attention = s["layers"] * 3 * 2 * 2 * D * (case["tokens"] + 1) / 2
    return case["batch"] * case["tokens"] * (6 * matrices + attention)


def prepare(case, folder):
    """config.json and tokens; the weights are drawn by the peer, which has safetensors."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hugging_face_config(case), indent=2))
    write_tokens(case, folder)


assert math.isclose(num_parameters(CASES["gpt2-b1"]), 124_439_808)
