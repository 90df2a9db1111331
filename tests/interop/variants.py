"""More tiny models than those of make_fixtures.py: other kinds of RoPE, windows and biases, and config.json as transformers 4 wrote it."""

import json

import transformers


def variants(sizes):
    """name -> function that makes the config. Those that are called older get a config.json of transformers 4."""
    plain = dict(rope_type="default", rope_theta=1000.0)
    llama3 = plain | dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)
    yarn = plain | dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)
    linear = plain | dict(rope_type="linear", factor=2.0)
    longrope = plain | dict(rope_type="longrope", short_factor=[1.0, 1.5], long_factor=[2.5, 4.0], original_max_position_embeddings=8)
    no_pad = sizes | dict(pad_token_id=None)
    neox = {key: value for key, value in sizes.items() if key != "num_key_value_heads"}
    t = transformers
    return {
        "llama_llama3": lambda: t.LlamaConfig(**sizes, rope_parameters=llama3),
        "llama_linear_older": lambda: t.LlamaConfig(**sizes, rope_parameters=linear),
        "llama_yarn_older": lambda: t.LlamaConfig(**sizes, attention_bias=True, rope_parameters=yarn | dict(attention_factor=1.3, beta_fast=2.0, beta_slow=0.5)),
        "llama_yarn_mscale": lambda: t.LlamaConfig(**sizes, mlp_bias=True, rope_parameters=yarn | dict(mscale=0.7, mscale_all_dim=0.9, truncate=False)),
        "llama_dynamic": lambda: t.LlamaConfig(**sizes, tie_word_embeddings=True, rope_parameters=plain | dict(rope_type="dynamic", factor=2.0)),
        "mistral_full_older": lambda: t.MistralConfig(**sizes, head_dim=8, sliding_window=None, rope_parameters=plain),
        "mistral_yarn": lambda: t.MistralConfig(**sizes, sliding_window=3, rope_parameters=yarn),
        "qwen2_yarn_older": lambda: t.Qwen2Config(**sizes, tie_word_embeddings=True, rope_parameters=yarn),
        "qwen3_window_older": lambda: t.Qwen3Config(
            **sizes, head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=4, max_window_layers=1, rope_parameters=linear
        ),
        "phi3_long_older": lambda: t.Phi3Config(**no_pad, original_max_position_embeddings=8, sliding_window=6, rope_parameters=longrope),
        "olmo2_bias_older": lambda: t.Olmo2Config(**no_pad, attention_bias=True, tie_word_embeddings=True, rope_parameters=linear),
        # transformers 5 takes rope_theta for layers without a window alone; its default is that of the published models.
        "olmo3_older": lambda: t.Olmo3Config(
            **sizes | dict(num_hidden_layers=4), pad_token_id=None, sliding_window=3,
            rope_parameters=dict(sliding_attention=plain | dict(rope_theta=5e5), full_attention=yarn | dict(rope_theta=5e5)),
        ),
        "smollm3_bias_older": lambda: t.SmolLM3Config(**no_pad, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, no_rope_layers=[0, 1], rope_parameters=linear),
        "granite_bias_older": lambda: t.GraniteConfig(
            **sizes, mlp_bias=True, embedding_multiplier=12.0, logits_scaling=0.25, residual_multiplier=0.22, attention_multiplier=0.5, rope_parameters=yarn
        ),
        "starcoder2_full": lambda: t.Starcoder2Config(**sizes, use_bias=False, sliding_window=None, tie_word_embeddings=False, rope_parameters=linear),
        "gpt_neox_older": lambda: t.GPTNeoXConfig(**neox, attention_bias=False, rope_parameters=plain | dict(partial_rotary_factor=0.5)),
        "gemma2_older": lambda: t.Gemma2Config(
            **no_pad, head_dim=4, sliding_window=3, query_pre_attn_scalar=16, attn_logit_softcapping=None, final_logit_softcapping=3.0, rope_parameters=plain
        ),
        "gemma3_text_older": lambda: t.Gemma3TextConfig(
            **no_pad, head_dim=8, sliding_window=4, query_pre_attn_scalar=6, sliding_window_pattern=2,
            rope_parameters=dict(sliding_attention=plain | dict(rope_theta=100.0), full_attention=plain | dict(rope_type="linear", factor=4.0)),
        ),
        "ministral3_window": lambda: t.Ministral3Config(
            **no_pad, head_dim=4, sliding_window=5, tie_word_embeddings=True, rope_parameters=yarn | dict(beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)
        ),
    }


def later_variants(sizes):
    """Seeds follow the position, so these are behind all others."""
    linear = dict(rope_type="linear", rope_theta=1000.0, factor=2.0)
    return {
        "granite_linear_older": lambda: transformers.GraniteConfig(**sizes, attention_bias=True, tie_word_embeddings=True, residual_multiplier=0.5, rope_parameters=linear),
        "gpt2_three_layers": lambda: transformers.GPT2Config(
            vocab_size=41, n_embd=12, n_layer=3, n_head=2, n_positions=40, layer_norm_epsilon=1e-3,
            bos_token_id=None, eos_token_id=None,
        ),
        "olmoe_clip": lambda: transformers.OlmoeConfig(
            **sizes, pad_token_id=None, num_experts=4, num_experts_per_tok=2, clip_qkv=0.6, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0)
        ),
    } | idle_variants(sizes) | odd_variants(sizes)


def idle_variants(sizes):
    """Mixtures of which no token chooses expert 0, with dense layers between those that have experts where the family has such."""
    plain = dict(rope_type="default", rope_theta=1000.0)
    of_qwen = sizes | dict(num_hidden_layers=4, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=8, decoder_sparse_step=2, tie_word_embeddings=False, rope_parameters=plain)
    of_deepseek = sizes | dict(num_experts_per_tok=3, n_routed_experts=12, n_group=4, topk_group=2, n_shared_experts=1, moe_intermediate_size=8, first_k_dense_replace=1, rope_parameters=plain)
    latents = dict(num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6, pad_token_id=None, tie_word_embeddings=False)
    return {
        "mixtral_idle": lambda: transformers.MixtralConfig(**sizes, head_dim=8, num_local_experts=12, num_experts_per_tok=2, tie_word_embeddings=False, rope_parameters=plain),
        "qwen2_moe_idle": lambda: transformers.Qwen2MoeConfig(**of_qwen, shared_expert_intermediate_size=12),
        "qwen3_moe_idle": lambda: transformers.Qwen3MoeConfig(**of_qwen, head_dim=8),
        "dots1_idle": lambda: transformers.Dots1Config(**of_deepseek, head_dim=8, sliding_window=None, tie_word_embeddings=False),
        "olmoe_idle": lambda: transformers.OlmoeConfig(**sizes, pad_token_id=None, num_experts=12, num_experts_per_tok=2, tie_word_embeddings=False, rope_parameters=plain),
        "deepseek_v2_idle": lambda: transformers.DeepseekV2Config(**of_deepseek | latents, topk_method="greedy"),
        "deepseek_v3_idle": lambda: transformers.DeepseekV3Config(**of_deepseek | latents, num_mtp_layers=0),
    }


def odd_variants(sizes):
    """Mixtures of five experts, which cannot have equal loads: a layer has 64 rows."""
    plain = dict(rope_type="default", rope_theta=1000.0)
    latents = dict(num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6, pad_token_id=None, tie_word_embeddings=False)
    of_deepseek = dict(n_routed_experts=5, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1, moe_intermediate_size=8, first_k_dense_replace=1)
    return {
        "olmoe_odd": lambda: transformers.OlmoeConfig(
            **sizes | dict(intermediate_size=8), pad_token_id=None, num_experts=5, num_experts_per_tok=2, tie_word_embeddings=False, rope_parameters=plain
        ),
        "qwen2_moe_odd": lambda: transformers.Qwen2MoeConfig(
            **sizes, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12, mlp_only_layers=[0], tie_word_embeddings=False, rope_parameters=plain
        ),
        "deepseek_v3_odd": lambda: transformers.DeepseekV3Config(**sizes | latents | of_deepseek, num_mtp_layers=0, rope_parameters=plain),
    }


def use_older_dialect(path):
    """config.json as transformers 4 wrote it and as most published folders have it."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    theta, partial = rope.pop("rope_theta"), rope.pop("partial_rotary_factor", None)
    if config["model_type"] == "gpt_neox":
        config |= {"rotary_emb_base": theta, "rotary_pct": partial}
    else:
        config |= {"rope_theta": theta} | ({} if partial in (None, 1.0) else {"partial_rotary_factor": partial})
    if rope["rope_type"] == "longrope":
        config["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings")
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    if "_sliding_window_pattern" in config:
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
    config.pop("layer_types", None)
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
