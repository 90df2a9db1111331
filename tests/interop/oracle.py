"""A decoder-only transformer in plain PyTorch, of every family that Echelon has, in whatever dtype the weights have.

The oracle of the interop tests. It shares no code with Echelon and none with transformers, to which make_fixtures.py holds it in float32. Nothing in it casts,
so that in float64 every digit counts. Weights are a dict with the names and shapes of Hugging Face's folders; what differs between the families is
read off the presence of names (biases, q_norm) and off config.json.

B batch, T tokens, D model width, H heads, K key/value heads, C width of a head, V vocabulary
"""

import math

import torch
import torch.nn.functional as F

IGNORED = -100


def logits(config, weights, tokens, documents=None, positions=None, routed=None):
    """[B, T, V] for tokens [B, T]. To the list `routed`, layers with experts add their router's logits and choice, [B, T, E] each. With documents [B, T], the number of each token's document, a token attends to its own one alone. positions [B, T]: 0, 1, ... if left out."""
    model = gpt2 if config["model_type"] == "gpt2" else llama
    positions = torch.arange(tokens.shape[1]).expand(tokens.shape) if positions is None else positions
    more = {} if routed is None else {"routed": routed}
    return model(config, weights, tokens, hidden_keys(tokens, documents), positions, **more)


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
    if config.get("layer_types"):
        return config["sliding_window"] if config["layer_types"][layer] == "sliding_attention" else None
    if "use_sliding_window" in config:
        return config["sliding_window"] if config["use_sliding_window"] and layer >= config["max_window_layers"] else None
    return config.get("sliding_window")


GELU = {"gelu": lambda x: F.gelu(x), "gelu_new": lambda x: F.gelu(x, approximate="tanh"), "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}
# GPT-NeoX, StarCoder2 and Phi-3 in the names of Llama.
NAMES = {
    "gpt_neox": {"gpt_neox.": "model.", "embed_in": "embed_tokens", "attention.dense": "self_attn.o_proj", "dense_h_to_4h": "up_proj", "dense_4h_to_h": "down_proj", "final_layer_norm": "norm", "embed_out": "lm_head"},
    "starcoder2": {"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"},
}


def in_names_of_llama(config, weights):
    """Fused tensors are cut into their parts; GPT-NeoX has q, k and v of one head after the other."""
    renamed, K = {}, config.get("num_key_value_heads", config["num_attention_heads"])
    for name, w in weights.items():
        for theirs, ours in NAMES.get(config["model_type"], {}).items():
            name = name.replace(theirs, ours)
        if "query_key_value" in name:
            of_heads = w.unflatten(0, (config["num_attention_heads"], 3, -1))
            for i, part in enumerate("qkv"):
                renamed[name.replace("attention.query_key_value", f"self_attn.{part}_proj")] = of_heads[:, i].flatten(0, 1)
        elif "qkv_proj" in name:
            C = config["hidden_size"] // config["num_attention_heads"]
            for part, rows in zip("qkv", w.split([w.shape[0] - 2 * K * C, K * C, K * C])):
                renamed[name.replace("qkv_proj", f"{part}_proj")] = rows
        elif "gate_up_proj" in name:
            for part, rows in zip(("gate", "up"), w.chunk(2)):
                renamed[name.replace("gate_up_proj", f"{part}_proj")] = rows
        else:
            renamed[name] = w
    return renamed


def llama(config, weights, tokens, hidden, positions, routed=None):
    w, H = in_names_of_llama(config, weights), config["num_attention_heads"]
    family, K = config["model_type"], config.get("num_key_value_heads", H)
    eps = next(config[key] for key in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon") if key in config)
    is_gemma, norms_after = family.startswith("gemma"), family in ("olmo2", "olmo3")
    norms_projections = family.startswith("olmo")  # q and k, over all heads together
    activation = GELU[config.get("hidden_activation") or config["hidden_act"]]
    residual = config.get("residual_multiplier", 1.0)

    def norm(x, name):
        gain = w[name + ".weight"] + (1 if is_gemma else 0)
        if name + ".bias" in w:
            return F.layer_norm(x, x.shape[-1:], gain, w[name + ".bias"], eps)
        return gain * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)

    def norm_if(holds, x, name):
        return norm(x, name) if holds else x

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def attention_of(h, layer, i):
        if config.get("kv_lora_rank"):
            return latent_attention(config, w, h, layer + "self_attn.", hidden, positions)
        q, k, v = (linear(h, layer + f"self_attn.{part}_proj") for part in "qkv")
        q, k = (norm_if(norms_projections, y, layer + f"self_attn.{part}_norm") for y, part in ((q, "q"), (k, "k")))
        if config.get("clip_qkv"):  # of OLMoE, which has norms_projections
            q, k, v = (y.clamp(-config["clip_qkv"], config["clip_qkv"]) for y in (q, k, v))
        q, k, v = heads(q, H), heads(k, K), heads(v, K)
        has_norms_of_heads = layer + "self_attn.q_norm.weight" in w and not norms_projections
        q, k = (norm_if(has_norms_of_heads, y, layer + f"self_attn.{part}_norm") for y, part in ((q, "q"), (k, "k")))
        if not config.get("no_rope_layers") or config["no_rope_layers"][i]:
            rope = rope_of(config, i)
            q, k = (rotate(y, *rope_angles(config, rope, y, positions)) for y in (q, k))
        q = q * query_scale(config, q, positions)
        k, v = (y.repeat_interleave(H // K, dim=1) for y in (k, v))
        scale = config.get("attention_multiplier") or (config.get("query_pre_attn_scalar") or q.shape[-1]) ** -0.5
        unseen = hidden | beyond_window(tokens, window_of(config, i))
        return linear(attention(q, k, v, unseen, scale, config.get("attn_logit_softcapping")), layer + "self_attn.o_proj")

    def feed_forward(h, layer):
        for name in ("mlp", "block_sparse_moe"):
            if f"{layer}{name}.gate.weight" in w:
                return mixture(config, w, h, layer + name, routed)
        if layer + "mlp.gate_proj.weight" in w:
            return linear(activation(linear(h, layer + "mlp.gate_proj")) * linear(h, layer + "mlp.up_proj"), layer + "mlp.down_proj")
        return linear(activation(linear(h, layer + "mlp.up_proj")), layer + "mlp.down_proj")

    embedding = w["model.embed_tokens.weight"]
    x = embedding[tokens] * (config["hidden_size"] ** 0.5 if is_gemma else config.get("embedding_multiplier", 1.0))
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        branch = attention_of(norm_if(not norms_after, x, layer + "input_layernorm"), layer, i)
        attended = norm_if(is_gemma or norms_after, branch, layer + "post_attention_layernorm")
        before_mlp = "pre_feedforward_layernorm" if is_gemma else "post_attention_layernorm"
        read_by_mlp = x if config.get("use_parallel_residual") else x + residual * attended
        branch = feed_forward(norm_if(not norms_after, read_by_mlp, layer + before_mlp), layer)
        x = x + residual * attended + residual * norm_if(is_gemma or norms_after, branch, layer + "post_feedforward_layernorm")
    head = w["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return capped(norm(x, "model.norm") @ head.T / config.get("logits_scaling", 1.0), config.get("final_logit_softcapping"))


def latent_attention(config, w, x, name, hidden, positions):
    """Keys and values expanded from a latent, and rotary columns that all heads share (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""
    H, L, R, V = (config[key] for key in ("num_attention_heads", "kv_lora_rank", "qk_rope_head_dim", "v_head_dim"))
    rope = rope_of(config, 0)

    def linear(x, part):
        return F.linear(x, w[f"{name}{part}.weight"])

    def norm(x, part):  # whose eps is not that of config.json
        return w[f"{name}{part}.weight"] * x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)

    def turned(x):
        if config.get("rope_interleave", True):
            x = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
        frequency, factor = frequencies(config, rope, R, positions.shape[-1], x.dtype)
        return rotate(x, positions[:, None, :, None].to(x.dtype) * frequency, factor)

    q = heads(linear(x, "q_proj") if config["q_lora_rank"] is None else linear(norm(linear(x, "q_a_proj"), "q_a_layernorm"), "q_b_proj"), H)
    latent, k_rope = linear(x, "kv_a_proj_with_mqa").split([L, R], dim=-1)
    k, v = heads(linear(norm(latent, "kv_a_layernorm"), "kv_b_proj"), H).split([q.shape[-1] - R, V], dim=-1)
    q = torch.cat((q[..., :-R], turned(q[..., -R:])), dim=-1)
    k = torch.cat((k, turned(k_rope[:, None]).expand(-1, H, -1, -1)), dim=-1)
    scale = q.shape[-1] ** -0.5
    if rope.get("mscale_all_dim") and rope["factor"] > 1:
        scale *= (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2
    return linear(attention(q, k, v, hidden, scale), "o_proj")


def capped(x, most):
    return most * torch.tanh(x / most) if most else x


def query_scale(config, q, positions):
    """Ministral 3: queries grow with the logarithm of how often their position exceeds the original context."""
    rope = config.get("rope_parameters") or {}
    beta = rope.get("llama_4_scaling_beta")
    if not beta:
        return 1.0
    times = torch.div(positions, rope["original_max_position_embeddings"], rounding_mode="floor").to(q.dtype)
    return (1 + beta * torch.log(1 + times))[:, None, :, None]


def mixture(config, w, x, name, routed=None):
    """Every expert for every token, times its weight: the score of the router, zero for those that are not among a token's largest."""
    logits = F.linear(x, w[name + ".gate.weight"])
    is_deepseek = config["model_type"] in ("dots1", "deepseek_v3")
    scores = logits.sigmoid() if is_deepseek else logits.softmax(-1)
    values = scores
    if is_deepseek:  # by scores and a bias, in the groups whose two best are the largest together
        values = scores + w[name + ".gate.e_score_correction_bias"].to(scores.dtype)
        groups = values.unflatten(-1, (config["n_group"], -1))
        best = groups.topk(2, dim=-1).values.sum(-1).topk(config["topk_group"], dim=-1).indices
        is_open = torch.zeros_like(groups[..., 0]).scatter(-1, best, 1.0) > 0
        values = groups.masked_fill(~is_open[..., None], -math.inf).flatten(-2)
    if config.get("topk_method") == "group_limited_greedy":  # in the groups with the best experts
        groups = values.unflatten(-1, (config["n_group"], -1))
        best = groups.amax(-1).topk(config["topk_group"], dim=-1).indices
        values = (groups * torch.zeros_like(groups[..., 0]).scatter(-1, best, 1.0)[..., None]).flatten(-2)
    chosen = torch.zeros_like(scores).scatter(-1, values.topk(config["num_experts_per_tok"], dim=-1).indices, 1.0)
    if routed is not None:
        routed.append((logits, chosen, scores / scores.sum(-1, keepdim=True)))
    weights = scores * chosen
    if config.get("norm_topk_prob", config["model_type"] == "mixtral"):
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * config.get("routed_scaling_factor", 1.0)
    gate, up, down = ("w1", "w3", "w2") if config["model_type"] == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    y = torch.zeros_like(x)
    for e in range(weights.shape[-1]):
        expert = f"{name}.experts.{e}."
        inner = F.silu(F.linear(x, w[f"{expert}{gate}.weight"])) * F.linear(x, w[f"{expert}{up}.weight"])
        y = y + weights[..., e : e + 1] * F.linear(inner, w[f"{expert}{down}.weight"])
    for shared in (name + ".shared_experts.", name + ".shared_expert."):
        if shared + "up_proj.weight" in w:
            of_shared = F.linear(F.silu(F.linear(x, w[shared + "gate_proj.weight"])) * F.linear(x, w[shared + "up_proj.weight"]), w[shared + "down_proj.weight"])
            gate = w.get(name + ".shared_expert_gate.weight")
            y = y + (of_shared if gate is None else F.linear(x, gate).sigmoid() * of_shared)
    return y


def router_losses(routed, loads, coefficients):
    """Of the sequences [B, T] of a whole step: the loss of each sequence, that of all tokens with the loads [layers, E] of the step before (None: even ones), and the
    z-loss, summed over layers; and the loads of this step."""
    sums, counts = [0.0, 0.0, 0.0], []
    for i, (logits, chosen, p) in enumerate(routed):
        E, k = chosen.shape[-1], chosen[0, 0].sum()
        f_of_sequences = chosen.sum(1) / (k * chosen.shape[1])
        f = torch.full((E,), 1 / E, dtype=p.dtype) if loads is None else loads[i] / loads[i].sum()
        sums[0] = sums[0] + E * (f_of_sequences * p.mean(1)).sum(-1).mean()
        sums[1] = sums[1] + E * (f * p.mean((0, 1))).sum()
        sums[2] = sums[2] + logits.logsumexp(-1).square().mean()
        counts.append(chosen.sum((0, 1)))
    return [coefficient * loss for coefficient, loss in zip(coefficients, sums)], torch.stack(counts).detach()


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


def attention(q, k, v, hidden, scale=None, cap=None):
    """Softmax(scale q k^T) v over the keys that are not hidden, with the heads side by side again: [B, T, H C]."""
    scores = capped(q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1])), cap).masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def rope_of(config, layer):
    """The constants of RoPE in a layer, from either dialect of config.json."""
    rope = config.get("rope_parameters")
    if rope and "full_attention" in rope:
        return rope[config["layer_types"][layer]]
    rope = dict(rope or {"rope_theta": config["rope_theta"], **(config.get("rope_scaling") or {})})
    for key in ("partial_rotary_factor", "original_max_position_embeddings"):
        if config.get(key) is not None:
            rope.setdefault(key, config[key])
    return rope


def rope_angles(config, rope, x, positions):
    """Position times frequency (Su et al. 2021, arXiv:2104.09864) as [B, 1, T, R / 2], of the first R columns of a head, and the factor of their cosines and sines."""
    R = int(x.shape[-1] * rope.get("partial_rotary_factor", 1.0))
    frequency, factor = frequencies(config, rope, R, positions.shape[-1], x.dtype)
    return positions[:, None, :, None].to(x.dtype) * frequency, factor


def frequencies(config, rope, R, T, dtype):
    kind, theta = rope.get("rope_type", "default"), rope["rope_theta"]
    frequency = theta ** (-torch.arange(0, R, 2, dtype=dtype) / R)
    old = rope.get("original_max_position_embeddings")
    if kind == "linear":
        return frequency / rope["factor"], 1.0
    if kind == "llama3":
        # Wavelengths that fit into the old context often enough stay; long ones are stretched by `factor`; in between a line leads from one to the other.
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((old * frequency / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return frequency * (kept + (1 - kept) / rope["factor"]), 1.0
    if kind == "yarn":
        # Peng et al. 2023, arXiv:2309.00071.
        def column(rotations):  # that turns so often in the old context
            return R * math.log(old / (rotations * 2 * math.pi)) / (2 * math.log(theta))

        first, last = column(rope.get("beta_fast") or 32), column(rope.get("beta_slow") or 1)
        if rope.get("truncate", True):
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, R - 1)
        stretched = ((torch.arange(R // 2, dtype=dtype) - first) / (last - first if last > first else 0.001)).clamp(0, 1)

        def mscale(m):
            return 0.1 * m * math.log(rope["factor"]) + 1 if rope["factor"] > 1 else 1.0

        factor = rope.get("attention_factor")
        if factor is None:
            both = rope.get("mscale") and rope.get("mscale_all_dim")
            factor = mscale(rope["mscale"]) / mscale(rope["mscale_all_dim"]) if both else mscale(1)
        return frequency * (1 - stretched + stretched / rope["factor"]), factor
    if kind == "longrope":
        # Ding et al. 2024, arXiv:2402.13753: short factors up to the old context, long ones beyond it.
        of_columns = torch.tensor(rope["long_factor"] if T > old else rope["short_factor"], dtype=dtype)
        ratio = config["max_position_embeddings"] / old
        factor = rope.get("attention_factor")
        if factor is None:
            factor = math.sqrt(1 + math.log(ratio) / math.log(old)) if ratio > 1 else 1.0
        return frequency / of_columns, factor
    return frequency, 1.0


def rotate(x, angles, factor):
    """Dimension j turns with dimension j + R / 2 (the halves of Hugging Face's layout, not neighbours); those from R on stay."""
    R = 2 * angles.shape[-1]
    a, b = x[..., :R].chunk(2, dim=-1)
    cos, sin = angles.cos() * factor, angles.sin() * factor
    return torch.cat((a * cos - b * sin, b * cos + a * sin, x[..., R:]), dim=-1)
