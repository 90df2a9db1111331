#!/usr/bin/env python3
"""Reads every config.json that Echelon wrote with transformers 4.57 and with transformers 5, and compares every field that counts.

usage: compare_configs.py OLDER_PYTHON FOLDER ...      OLDER_PYTHON: that of scripts/interop_venv --older; FOLDER/NAME/config.json

Absent, null and false are the same. Not compared are the fields of any config that say nothing of a model, such as those of generation. Of RoPE the two versions have
different fields, of which both mean a kind of rotation for layers with and without a window.
"""

import json
import subprocess
import sys
from pathlib import Path

import transformers

ONLY_NEWER = ("ministral3",)
OF_ANY_MODEL = ("architectures", "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "tie_word_embeddings", "model_type")
OF_ROPE = ("rope_scaling", "rope_theta", "rope_parameters", "rope_local_base_freq", "rotary_emb_base", "rotary_pct", "partial_rotary_factor")
# Of a class of one version: losses that its model does not compute, and a sum of two other fields.
OF_ONE_VERSION = {"deepseek_v2": ("aux_loss_alpha", "seq_aux", "pretraining_tp", "qk_head_dim")}
OTHER_NAMES = {"num_local_experts": "num_experts"}  # of a class that lacks the second one


def main():
    if sys.argv[1:2] == ["--dump"]:
        return print(json.dumps([fields_of(Path(name)) for name in sys.argv[2:]]))
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    names = sorted(str(path) for folder in sys.argv[2:] for path in Path(folder).glob("*/config.json"))
    older = json.loads(subprocess.run([sys.argv[1], __file__, "--dump", *names], check=True, capture_output=True, text=True).stdout)
    num_compared = 0
    for name, old in zip(names, older, strict=True):
        new = fields_of(Path(name))
        if old is None and language_model_type(name) in ONLY_NEWER:
            continue
        if old is None or new is None:
            sys.exit(f"compare_configs: transformers {'4' if old is None else '5'} cannot read {name}")
        for key in sorted(set(old) | set(new)):
            if old.get(key) != new.get(key):
                sys.exit(f"compare_configs: {name}: {key} is {old.get(key)} in transformers 4, {new.get(key)} in transformers 5")
        num_compared += 1
    print(f"transformers 4.57 and 5 read {num_compared} configs to equal fields; {len(names) - num_compared} are of types that only 5 knows")


def language_model_type(name):
    fields = json.loads(Path(name).read_text())
    return fields.get("text_config", fields)["model_type"]


def fields_of(path):
    """None if this version cannot read it."""
    try:
        config = transformers.AutoConfig.from_pretrained(path.parent)
    except (KeyError, ValueError):
        return None
    whole = json.loads(json.dumps(config.to_dict(), default=str))
    whole.pop("vision_config", None)  # which comes back as it was
    language = that_count(whole.pop("text_config", {"model_type": None}))
    return that_count(whole) | {f"text_config.{key}": value for key, value in language.items()}


def that_count(fields):
    base = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
    ignored = (set(base().to_dict()) | set(fields_of_generation())) - set(OF_ANY_MODEL)
    ignored |= set(OF_ONE_VERSION.get(fields["model_type"], ()))
    fields = {key: value for key, value in fields.items() if OTHER_NAMES.get(key) not in fields}
    if set(fields.get("layer_types") or []) == {"full_attention"}:  # as where 4 knows no other layers
        fields.pop("layer_types")
    counting = {OTHER_NAMES.get(key, key): value for key, value in fields.items() if key not in ignored and key not in OF_ROPE and value not in (None, False)}
    return counting | {"rope": ropes_of(fields)}


def fields_of_generation():
    """Fields of any config in 4.57, of which 5 has no defaults."""
    return """transformers_version add_cross_attention bad_words_ids begin_suppress_tokens cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample
        early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id is_decoder length_penalty
        max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores prefix pruned_heads remove_invalid_values
        repetition_penalty return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class
        top_k top_p torchscript typical_p use_bfloat16""".split()


def ropes_of(fields):
    """The rotation of layers without and with a window, as the models of this version compute it."""
    if transformers.__version__.startswith("4."):
        full = (fields.get("rope_scaling") or {}) | {"rope_theta": fields.get("rope_theta", fields.get("rotary_emb_base"))}
        if fields["model_type"] == "gpt_neox":
            full["partial_rotary_factor"] = fields["rotary_pct"]
        elif "partial_rotary_factor" in fields:
            full["partial_rotary_factor"] = fields["partial_rotary_factor"]
        sliding = full
        if fields["model_type"] == "gemma3_text":
            sliding = {"rope_theta": fields["rope_local_base_freq"]}
        elif fields["model_type"] == "olmo3":  # whose layers with a window are not scaled
            sliding = {"rope_theta": fields["rope_theta"]}
    else:
        parameters = fields.get("rope_parameters") or {}
        full = parameters.get("full_attention", parameters)
        sliding = parameters.get("sliding_attention", parameters)
    return [rotation(rope, fields) for rope in (full, sliding)]


def rotation(rope, fields):
    rope = {key: value for key, value in rope.items() if value is not None}
    rope["rope_type"] = rope.pop("type", rope.get("rope_type", "default"))
    rope["partial_rotary_factor"] = rope.get("partial_rotary_factor") or 1.0
    if rope["rope_type"] == "longrope":
        rope["original_max_position_embeddings"] = fields.get("original_max_position_embeddings") or rope["original_max_position_embeddings"]
        rope.pop("factor", None)  # the ratio of the positions
    return rope


if __name__ == "__main__":
    main()
