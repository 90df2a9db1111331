"""GPT-2, Llama and a mixture of experts as one would write them for speed in eager PyTorch: fused attention, fused norms, no dropout, a tied head.

B batch, T tokens, D model width, H heads, K key/value heads, C width of a head, F feed-forward width, V vocabulary,
E experts, k of them for a token
"""

import torch
import torch.nn.functional as F
from torch import nn

IGNORED = -100


class Gpt2(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes["vocab"], sizes["width"])
        self.position = nn.Embedding(sizes["positions"], sizes["width"])
        self.blocks = nn.ModuleList(Gpt2Block(sizes) for _ in range(sizes["layers"]))
        self.norm = nn.LayerNorm(sizes["width"])

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Gpt2Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        D, F_ = sizes["width"], sizes["inner"]
        self.heads = sizes["heads"]
        self.norm_1, self.norm_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, F_), nn.Linear(F_, D)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Llama(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes["vocab"], sizes["width"])
        self.blocks = nn.ModuleList(self.make_block(sizes) for _ in range(sizes["layers"]))
        self.norm = nn.RMSNorm(sizes["width"], eps=1e-5)
        C = sizes["width"] // sizes["heads"]
        frequency = 10000.0 ** (-torch.arange(0, C, 2, dtype=torch.float64) / C)
        angles = torch.arange(sizes["positions"], dtype=torch.float64)[:, None] * frequency
        self.register_buffer("cos", angles.cos().float().repeat(1, 2), persistent=False)
        self.register_buffer("sin", torch.cat((-angles.sin(), angles.sin()), dim=-1).float(), persistent=False)

    def make_block(self, sizes):
        return LlamaBlock(sizes)

    def forward(self, tokens):
        x = self.embedding(tokens)
        T = tokens.shape[1]
        rope = (self.cos[:T].to(x.dtype), self.sin[:T].to(x.dtype))
        for block in self.blocks:
            x = block(x, rope)
        return self.norm(x)


class LlamaBlock(nn.Module):
    repeats_kv = True  # grouped heads: keys and values repeated for the flash kernel, or enable_gqa (a knob)

    def __init__(self, sizes):
        super().__init__()
        D, F_, self.H, self.K = sizes["width"], sizes["inner"], sizes["heads"], sizes["kv_heads"]
        C = D // self.H
        self.norm_1, self.norm_2 = nn.RMSNorm(D, eps=1e-5), nn.RMSNorm(D, eps=1e-5)
        self.q, self.k, self.v = (nn.Linear(D, n * C, bias=False) for n in (self.H, self.K, self.K))
        self.out = nn.Linear(D, D, bias=False)
        self.add_branch(D, F_, sizes)

    def add_branch(self, D, F_, sizes):
        self.gate, self.up, self.down = nn.Linear(D, F_, bias=False), nn.Linear(D, F_, bias=False), nn.Linear(F_, D, bias=False)

    def forward(self, x, rope):
        h = self.norm_1(x)
        q, k, v = (w(h).unflatten(-1, (n, -1)).transpose(1, 2) for w, n in ((self.q, self.H), (self.k, self.K), (self.v, self.K)))
        q, k = rotate(q, rope), rotate(k, rope)
        if self.repeats_kv and self.H != self.K:
            k, v = (y.repeat_interleave(self.H // self.K, dim=1) for y in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.branch(self.norm_2(x))

    def branch(self, h):
        return self.down(F.silu(self.gate(h)) * self.up(h))


class Mixtral(Llama):
    def make_block(self, sizes):
        return MixtureBlock(sizes)


class Experts(nn.Module):
    how = "grouped"  # a product of all experts, or one product after the other (a knob)

    def __init__(self, sizes):
        super().__init__()
        D, F_, E, self.k = sizes["width"], sizes["inner"], sizes["experts"], sizes["chosen"]
        self.router = nn.Linear(D, E, bias=False)
        self.gate, self.up, self.down = (nn.Parameter(torch.empty(E, *shape)) for shape in ((F_, D), (F_, D), (D, F_)))

    def forward(self, x):
        flat = x.flatten(0, 1)
        scores = F.softmax(self.router(flat).float(), dim=-1)
        weights, experts = scores.topk(self.k, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        order = experts.flatten().argsort(stable=True)
        tokens = order // self.k
        counts = torch.bincount(experts.flatten(), minlength=self.router.weight.shape[0])
        rows = flat.index_select(0, tokens)
        y = self.grouped(rows, counts) if self.how == "grouped" else self.one_by_one(rows, counts.tolist())
        y = y * weights.flatten().index_select(0, order)[:, None]
        return torch.zeros_like(flat).index_add(0, tokens, y).view_as(x)

    def grouped(self, rows, counts):
        offsets = counts.cumsum(0).int()
        inner = F.silu(F.grouped_mm(rows, self.gate.mT, offs=offsets)) * F.grouped_mm(rows, self.up.mT, offs=offsets)
        return F.grouped_mm(inner, self.down.mT, offs=offsets)

    def one_by_one(self, rows, counts):
        parts = zip(rows.split(counts), self.gate, self.up, self.down)
        return torch.cat([F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down) for part, gate, up, down in parts])


class MixtureBlock(LlamaBlock):
    def add_branch(self, D, F_, sizes):
        self.experts = Experts(sizes)

    def branch(self, h):
        return self.experts(h)


class OfTransformers(nn.Module):
    """The model of a folder as transformers computes it, `how`: its experts."""

    def __init__(self, folder, how, dtype):
        super().__init__()
        import transformers

        self.whole = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa", experts_implementation=how)

    @property
    def embedding(self):
        return self.whole.get_input_embeddings()

    def forward(self, tokens):
        return self.whole.model(input_ids=tokens, use_cache=False).last_hidden_state


def rotate(x, rope):
    """Dimension j turns with dimension j + C / 2, as in Hugging Face's layout."""
    cos, sin = rope
    return x * cos + torch.roll(x, x.shape[-1] // 2, dims=-1) * sin


GPT2_NAMES = {"norm_1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj", "norm_2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj"}
LLAMA_NAMES = {
    "norm_1": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "out": "self_attn.o_proj",
    "norm_2": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
MIXTURE_NAMES = {"router.weight": "gate.weight", "gate": "experts.{}.w1.weight", "up": "experts.{}.w3.weight", "down": "experts.{}.w2.weight"}


def published_name(family, name):
    """A parameter's name in Hugging Face's folders, with {} for an expert where all are one parameter, and whether the matrix lies transposed there."""
    if ".experts." in name:
        _, index, _, part = name.split(".", 3)
        return f"model.layers.{index}.block_sparse_moe.{MIXTURE_NAMES[part]}", False
    module, _, kind = name.rpartition(".")
    gpt2 = family == "gpt2"
    if module.startswith("blocks."):
        _, index, part = module.split(".")
        prefix = f"transformer.h.{index}." if gpt2 else f"model.layers.{index}."
        published = prefix + (GPT2_NAMES if gpt2 else LLAMA_NAMES)[part]
        return f"{published}.{kind}", gpt2 and kind == "weight" and not part.startswith("norm")
    outer = {"embedding": "transformer.wte" if gpt2 else "model.embed_tokens", "position": "transformer.wpe", "norm": "transformer.ln_f" if gpt2 else "model.norm"}
    return f"{outer[module]}.{kind}", False


def make(family, sizes):
    return {"gpt2": Gpt2, "llama": Llama, "mixtral": Mixtral}[family](sizes)


def num_parameters(family, sizes):
    with torch.device("meta"):
        return sum(p.numel() for p in make(family, sizes).parameters())
