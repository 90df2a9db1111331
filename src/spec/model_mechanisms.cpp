#include "spec/model_mechanisms.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "spec/field_text.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <vector>

namespace echelon {
namespace {

using field_text::parse, field_text::text_of;

struct Mechanism {
  std::string name;
  std::function<std::string(const ModelSpec&)> text;  // empty: the model has no such value
  std::function<bool(std::string_view, ModelSpec&)> set;
};

template <class T>
Mechanism mechanism(std::string name, T ModelSpec::*member) {
  return {std::move(name), [=](const ModelSpec& model) { return text_of(model.*member); },
          [=](std::string_view text, ModelSpec& model) { return parse(text, model.*member); }};
}

/// Of the RoPE of all layers, or of that of layers with a window.
enum class WhichRope : std::uint8_t { all, sliding };

const std::optional<RopeScaling>* find_scaling(WhichRope which, const ModelSpec& model) {
  if (which == WhichRope::all) return &model.rope_scaling;
  return model.sliding_rope ? &model.sliding_rope->scaling : nullptr;
}

RopeScaling& scaling(WhichRope which, ModelSpec& model) {
  if (which == WhichRope::sliding && !model.sliding_rope) model.sliding_rope.emplace();
  std::optional<RopeScaling>& held = which == WhichRope::all ? model.rope_scaling : model.sliding_rope->scaling;
  if (!held) held.emplace();
  return *held;
}

template <class T>
Mechanism mechanism(WhichRope which, std::string_view name, T RopeScaling::*member) {
  return {fmt::format("{}rope_scaling.{}", which == WhichRope::sliding ? "sliding_" : "", name),
          [=](const ModelSpec& model) {
            const std::optional<RopeScaling>* held = find_scaling(which, model);
            return held != nullptr && *held ? text_of((**held).*member) : std::string();
          },
          [=](std::string_view text, ModelSpec& model) { return parse(text, scaling(which, model).*member); }};
}

Mechanism sliding_theta() {
  return {"sliding_rope_theta",
          [](const ModelSpec& model) {
            return model.sliding_rope ? text_of(model.sliding_rope->rope_theta) : std::string();
          },
          [](std::string_view text, ModelSpec& model) {
            if (!model.sliding_rope) model.sliding_rope.emplace();
            return parse(text, model.sliding_rope->rope_theta);
          }};
}

void add_scaling(WhichRope which, std::vector<Mechanism>& all) {
  using S = RopeScaling;
  all.push_back(mechanism(which, "rope_type", &S::rope_type));
  all.push_back(mechanism(which, "factor", &S::factor));
  all.push_back(mechanism(which, "low_freq_factor", &S::low_freq_factor));
  all.push_back(mechanism(which, "high_freq_factor", &S::high_freq_factor));
  all.push_back(mechanism(which, "original_max_position_embeddings", &S::original_max_position_embeddings));
  all.push_back(mechanism(which, "beta_fast", &S::beta_fast));
  all.push_back(mechanism(which, "beta_slow", &S::beta_slow));
  all.push_back(mechanism(which, "mscale", &S::mscale));
  all.push_back(mechanism(which, "mscale_all_dim", &S::mscale_all_dim));
  all.push_back(mechanism(which, "truncate", &S::truncate));
  all.push_back(mechanism(which, "attention_factor", &S::attention_factor));
  all.push_back(mechanism(which, "llama_4_scaling_beta", &S::llama_4_scaling_beta));
  all.push_back(mechanism(which, "short_factor", &S::short_factor));
  all.push_back(mechanism(which, "long_factor", &S::long_factor));
}

std::vector<Mechanism> make_mechanisms() {
  using M = ModelSpec;
  std::vector<Mechanism> all = {mechanism("norm", &M::norm),
                                mechanism("position", &M::position),
                                mechanism("mlp", &M::mlp),
                                mechanism("qkv_bias", &M::qkv_bias),
                                mechanism("o_bias", &M::o_bias),
                                mechanism("mlp_bias", &M::mlp_bias),
                                mechanism("qk_norm", &M::qk_norm),
                                mechanism("qk_norm_of_projection", &M::qk_norm_of_projection),
                                mechanism("clip_qkv", &M::clip_qkv),
                                mechanism("kv_lora_rank", &M::kv_lora_rank),
                                mechanism("q_lora_rank", &M::q_lora_rank),
                                mechanism("qk_rope_head_dim", &M::qk_rope_head_dim),
                                mechanism("v_head_dim", &M::v_head_dim),
                                mechanism("rope_interleave", &M::rope_interleave),
                                mechanism("norm_placement", &M::norm_placement),
                                mechanism("norm_adds_one", &M::norm_adds_one),
                                mechanism("norm_rounds_before_gain", &M::norm_rounds_before_gain),
                                mechanism("use_parallel_residual", &M::use_parallel_residual),
                                mechanism("embedding_multiplier", &M::embedding_multiplier),
                                mechanism("rounds_embedding_multiplier", &M::rounds_embedding_multiplier),
                                mechanism("residual_multiplier", &M::residual_multiplier),
                                mechanism("attention_multiplier", &M::attention_multiplier),
                                mechanism("query_pre_attn_scalar", &M::query_pre_attn_scalar),
                                mechanism("logits_scaling", &M::logits_scaling),
                                mechanism("attn_logit_softcapping", &M::attn_logit_softcapping),
                                mechanism("final_logit_softcapping", &M::final_logit_softcapping),
                                mechanism("partial_rotary_factor", &M::partial_rotary_factor),
                                mechanism("no_rope_layers", &M::no_rope_layers),
                                mechanism("layer_types", &M::layer_types),
                                sliding_theta()};
  for (const WhichRope which : {WhichRope::all, WhichRope::sliding}) add_scaling(which, all);
  return all;
}

const std::vector<Mechanism>& all_mechanisms() {
  static const std::vector<Mechanism> all = make_mechanisms();
  return all;
}

}  // namespace

std::string mechanisms_of(const ModelSpec& model) {
  ModelSpec usual = family_defaults(model.family);
  if (model.rope_scaling) {  // its values that config keys name are theirs
    usual.rope_scaling.emplace();
    usual.rope_scaling->factor = model.rope_scaling->factor;
    usual.rope_scaling->low_freq_factor = model.rope_scaling->low_freq_factor;
    usual.rope_scaling->high_freq_factor = model.rope_scaling->high_freq_factor;
    usual.rope_scaling->original_max_position_embeddings = model.rope_scaling->original_max_position_embeddings;
  }
  std::string text;
  for (const Mechanism& each : all_mechanisms())
    if (const std::string value = each.text(model); value != each.text(usual))
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", each.name, value);
  return text;
}

void set_mechanisms(std::string_view key, std::string_view text, ModelSpec& model) {
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view setting = text.substr(0, space), name = setting.substr(0, setting.find('='));
    text.remove_prefix(std::min(space + 1, text.size()));
    if (setting.empty()) continue;
    std::vector<std::string_view> names;
    const Mechanism* found = nullptr;
    for (const Mechanism& each : all_mechanisms()) {
      names.push_back(each.name);
      if (each.name == name) found = &each;
    }
    require(found != nullptr, "{} has '{}', which is no mechanism; did you mean {}?", key, name,
            closest_name(name, names));
    const std::string_view value = setting.size() > name.size() ? setting.substr(name.size() + 1) : std::string_view();
    require(found->set(value, model), "{} has {} = '{}', which is no value of it (use {})", key, name, value,
            found->text(ModelSpec()));
  }
}

}  // namespace echelon
