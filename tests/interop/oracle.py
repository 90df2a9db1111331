"""A decoder-only transformer in plain PyTorch: GPT-2, Llama, Mistral, Mixtral, Qwen2, Qwen3 and Qwen3-MoE, in whatever dtype the weights have.

The oracle of the interop tests. It shares no code with Echelon and none with transformers, to which make_fixtures.py holds it in float32. Nothing in it casts,
so that in float64 every digit counts. Weights are a dict with the names and shapes of Hugging Face's folders; what differs between the families is
read off the presence of names (biases, q_norm) and off config.json.

B batch, T tokens, D model width, H heads, K key/value heads, C width of a head, V vocabulary
"""

import math

import torch
import torch.nn.functional as F

IGNORED = -100


def logits(config, weights, tokens, documents=None, positions=None):
    """[B, T, V] for tokens [B, T]. With documents [B, T], the number of each token's document, a token attends to its own one alone. positions [B, T]: 0, 1, ... if left out."""
    model = gpt2 if config["model_type"] == "gpt2" else llama
    positions = torch.arange(tokens.shape[1]).expand(tokens.shape) if positions is None else positions
    return model(config, weights, tokens, hidden_keys(tokens, documents), positions)


def loss(logits, targets):
    """Cross entropy: the sum over valid targets divided by their number."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=IGNORED, reduction="sum") / (targets != IGNORED).sum()


def gpt2(config, weights, tokens, hidden, positions):
    w, H, eps = weights, config["n_head"], config["layer_norm_epsilon"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)

    def conv1d(x, name):  # a linear layer whose weight is [in, out]
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][positions]
    for i in range(config["n_layer"]):
        layer = f"transformer.h.{i}."
        q, k, v = (heads(y, H) for y in conv1d(norm(x, layer + "ln_1"), layer + "attn.c_attn").chunk(3, dim=-1))
        x = x + conv1d(attention(q, k, v, hidden), layer + "attn.c_proj")
        h = F.gelu(conv1d(norm(x, layer + "ln_2"), layer + "mlp.c_fc"), approximate="tanh")
        x = x + conv1d(h, layer + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def window_of(config, layer):
    """How many keys a query of a layer sees at most, its own among them; None: all before it."""
    is_mistral = config["model_type"] in ("mistral", "mixtral")
    has_window = is_mistral or (config.get("use_sliding_window") and layer >= config["max_window_layers"])
    return config["sliding_window"] if has_window else None


def llama(config, weights, tokens, hidden, positions):
    w, H, K, eps = weights, config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]

    def norm(x, name):
        return w[name + ".weight"] * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        h = norm(x, layer + "input_layernorm")
        q = heads(linear(h, layer + "self_attn.q_proj"), H)
        k = heads(linear(h, layer + "self_attn.k_proj"), K)
        v = heads(linear(h, layer + "self_attn.v_proj"), K)
        if layer + "self_attn.q_norm.weight" in w:
            q, k = norm(q, layer + "self_attn.q_norm"), norm(k, layer + "self_attn.k_norm")
        angles = rope_angles(config, q, positions)
        k, v = (y.repeat_interleave(H // K, dim=1) for y in (rotate(k, angles), v))
        x = x + linear(attention(rotate(q, angles), k, v, hidden | beyond_window(tokens, window_of(config, i))), layer + "self_attn.o_proj")
        h = norm(x, layer + "post_attention_layernorm")
        branch = next(name for name in ("mlp.gate", "block_sparse_moe.gate", "mlp") if name == "mlp" or layer + name + ".weight" in w)
        if branch == "mlp":
            x = x + linear(F.silu(linear(h, layer + "mlp.gate_proj")) * linear(h, layer + "mlp.up_proj"), layer + "mlp.down_proj")
        else:
            x = x + mixture(config, w, h, layer + branch.removesuffix(".gate"))
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return norm(x, "model.norm") @ w[head + ".weight"].T


def mixture(config, w, x, name):
    """Every expert for every token, times its weight: the softmax of the router over all experts, zero for those that are not among a token's largest."""
    probabilities = F.linear(x, w[name + ".gate.weight"]).softmax(-1)
    chosen = torch.zeros_like(probabilities).scatter(-1, probabilities.topk(config["num_experts_per_tok"], dim=-1).indices, 1.0)
    weights = probabilities * chosen
    if config.get("norm_topk_prob", config["model_type"] == "mixtral"):
        weights = weights / weights.sum(-1, keepdim=True)
    gate, up, down = ("w1", "w3", "w2") if config["model_type"] == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    y = torch.zeros_like(x)
    for e in range(weights.shape[-1]):
        expert = f"{name}.experts.{e}."
        inner = F.silu(F.linear(x, w[f"{expert}{gate}.weight"])) * F.linear(x, w[f"{expert}{up}.weight"])
        y = y + weights[..., e : e + 1] * F.linear(inner, w[f"{expert}{down}.weight"])
    return y


def heads(x, num_heads):
    """[B, T, H C] -> [B, H, T, C]"""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def hidden_keys(tokens, documents):
    """Which keys a query does not see, [B, 1, T, T]: those behind it, and those of other documents."""
    B, T = tokens.shape
    behind = torch.ones(T, T, dtype=torch.bool).triu(1).expand(B, 1, T, T)
    return behind if documents is None else behind | (documents[:, None, :, None] != documents[:, None, None, :])


def beyond_window(tokens, window):
    """Keys that a sliding window hides, [T, T]: query p sees p - window + 1 to p."""
    T = tokens.shape[1]
    return torch.ones(T, T, dtype=torch.bool).tril(-(window or T))


def attention(q, k, v, hidden):
    """Softmax(q k^T / sqrt(C)) v over the keys that are not hidden, with the heads side by side again: [B, T, H C]."""
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def rope_angles(config, q, positions):
    """[B, 1, T, C / 2]: position times frequency (Su et al. 2021, arXiv:2104.09864), with Llama 3.1's scaling where config.json asks for it."""
    C = q.shape[-1]
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"], **(config.get("rope_scaling") or {})}
    frequency = rope["rope_theta"] ** (-torch.arange(0, C, 2, dtype=q.dtype) / C)
    if rope.get("rope_type") == "llama3":
        # Wavelengths that fit into the old context often enough stay; long ones are stretched by `factor`; in between a line leads from one to the other.
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        waves_in_context = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
        kept = ((waves_in_context - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / rope["factor"])
    return positions[:, None, :, None].to(q.dtype) * frequency


def rotate(x, angles):
    """Dimension j turns with dimension j + C / 2 (the halves of Hugging Face's layout, not neighbours)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), dim=-1)
