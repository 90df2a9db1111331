#include "checkpoint/hf/weight_names.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

namespace echelon {
namespace {

// Sizes: V vocabulary, P positions, D model width, F feed-forward width, Q and K rows of the query and of the key
// projection.
struct Widths {
  explicit Widths(const ModelSpec& m)
      : V(m.vocab_size),
        P(m.max_position_embeddings),
        D(m.hidden_size),
        F(m.intermediate_size),
        Q(m.num_attention_heads * m.head_dim),
        K(m.num_key_value_heads * m.head_dim) {}
  std::int64_t V, P, D, F, Q, K;
};

class ParameterList {
 public:
  explicit ParameterList(const ModelSpec& model) : model_(model), w_(model) {}

  std::vector<NamedShape> take() {
    add("model.embed_tokens.weight", {w_.V, w_.D});
    if (model_.position == PositionKind::learned) add("model.embed_positions.weight", {w_.P, w_.D});
    for (std::int64_t i = 0; i < model_.num_hidden_layers; ++i) add_layer(fmt::format("model.layers.{}.", i));
    add_norm("model.norm");
    if (!model_.tie_word_embeddings) add("lm_head.weight", {w_.V, w_.D});
    return std::move(parameters_);
  }

 private:
  void add(std::string name, Sizes sizes) { parameters_.push_back({std::move(name), sizes}); }

  void add_norm(const std::string& name) {
    add(name + ".weight", {w_.D});
    if (model_.norm == NormKind::layer_norm) add(name + ".bias", {w_.D});
  }

  void add_linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }

  void add_layer(const std::string& layer) {
    if (model_.norm_placement != NormPlacement::after) add_norm(layer + "input_layernorm");
    add_linear(layer + "self_attn.q_proj", w_.Q, w_.D, model_.qkv_bias);
    add_linear(layer + "self_attn.k_proj", w_.K, w_.D, model_.qkv_bias);
    add_linear(layer + "self_attn.v_proj", w_.K, w_.D, model_.qkv_bias);
    const bool is_whole = model_.qk_norm_of_projection;
    if (model_.qk_norm) add(layer + "self_attn.q_norm.weight", {is_whole ? w_.Q : model_.head_dim});
    if (model_.qk_norm) add(layer + "self_attn.k_norm.weight", {is_whole ? w_.K : model_.head_dim});
    add_linear(layer + "self_attn.o_proj", w_.D, w_.Q, model_.o_bias);
    add_norm(layer + "post_attention_layernorm");
    if (model_.norm_placement == NormPlacement::both) add_norm(layer + "pre_feedforward_layernorm");
    if (is_gated(model_.mlp)) add_linear(layer + "mlp.gate_proj", w_.F, w_.D, model_.mlp_bias);
    add_linear(layer + "mlp.up_proj", w_.F, w_.D, model_.mlp_bias);
    add_linear(layer + "mlp.down_proj", w_.D, w_.F, model_.mlp_bias);
    if (model_.norm_placement != NormPlacement::before) add_norm(layer + "post_feedforward_layernorm");
  }

  const ModelSpec& model_;
  Widths w_;
  std::vector<NamedShape> parameters_;
};

enum class Slot : std::uint8_t { whole, query, key, value };  // the parameter's place among the columns of its tensor

struct Gpt2Name {
  std::string_view parameter;  // without ".weight" or ".bias"
  std::string_view tensor;
  Slot slot = Slot::whole;
  bool is_conv1d = false;
};

constexpr std::array gpt2_layer_names = {
    Gpt2Name{"input_layernorm", "ln_1"},
    Gpt2Name{"self_attn.q_proj", "attn.c_attn", Slot::query, true},
    Gpt2Name{"self_attn.k_proj", "attn.c_attn", Slot::key, true},
    Gpt2Name{"self_attn.v_proj", "attn.c_attn", Slot::value, true},
    Gpt2Name{"self_attn.o_proj", "attn.c_proj", Slot::whole, true},
    Gpt2Name{"post_attention_layernorm", "ln_2"},
    Gpt2Name{"mlp.up_proj", "mlp.c_fc", Slot::whole, true},
    Gpt2Name{"mlp.down_proj", "mlp.c_proj", Slot::whole, true},
};
constexpr std::array gpt2_names = {Gpt2Name{"model.embed_tokens", "transformer.wte"},
                                   Gpt2Name{"model.embed_positions", "transformer.wpe"},
                                   Gpt2Name{"model.norm", "transformer.ln_f"}, Gpt2Name{"lm_head", "lm_head"}};

constexpr std::string_view layer_prefix = "model.layers.";

/// The slot in a tensor of sizes `in_file` that stores query, key and value next to each other.
TensorSlice slice_of(const Widths& w, Slot slot, const Sizes& in_file) {
  if (slot == Slot::whole) return TensorSlice(in_file);
  Sizes tensor = in_file;
  tensor[-1] = w.Q + 2 * w.K;
  const std::int64_t first = slot == Slot::query ? 0 : slot == Slot::key ? w.Q : w.Q + w.K;
  return {tensor, tensor.num_dims() - 1, {first, in_file[-1]}};
}

FilePlace gpt2_place(const Widths& w, std::string_view parameter, const Sizes& sizes) {
  const auto suffix = parameter.substr(parameter.rfind('.'));  // ".weight", ".bias"
  std::string_view stem = parameter.substr(0, parameter.size() - suffix.size());
  std::string block;
  const Gpt2Name* name = nullptr;
  if (stem.starts_with(layer_prefix)) {
    stem.remove_prefix(layer_prefix.size());
    const auto dot = stem.find('.');
    block = fmt::format("transformer.h.{}.", stem.substr(0, dot));
    name = std::find_if(gpt2_layer_names.begin(), gpt2_layer_names.end(),
                        [&](const Gpt2Name& candidate) { return candidate.parameter == stem.substr(dot + 1); });
    require(name != gpt2_layer_names.end(), "GPT-2 has no parameter '{}'", parameter);
  } else {
    name = std::find_if(gpt2_names.begin(), gpt2_names.end(),
                        [&](const Gpt2Name& candidate) { return candidate.parameter == stem; });
    require(name != gpt2_names.end(), "GPT-2 has no parameter '{}'", parameter);
  }
  const bool transposed = name->is_conv1d && sizes.num_dims() == 2;
  const Sizes in_file = transposed ? Sizes{sizes[1], sizes[0]} : sizes;
  return {.tensor = fmt::format("{}{}{}", block, name->tensor, suffix),
          .slice = slice_of(w, name->slot, in_file),
          .transposed = transposed};
}

FilePlace place_of(const ModelSpec& model, const NamedShape& parameter) {
  switch (model.family) {
    case Family::gpt2: return gpt2_place(Widths(model), parameter.name, parameter.sizes);
    case Family::llama:
    case Family::qwen2:
    case Family::qwen3:
    case Family::mistral: return {.tensor = parameter.name, .slice = TensorSlice(parameter.sizes)};
  }
  throw Error("unknown model family");
}

}  // namespace

std::vector<NamedShape> global_parameters(const ModelSpec& model) { return ParameterList(model).take(); }

std::map<std::string, PlacedParameter, std::less<>> placed_parameters(const ModelSpec& model) {
  std::map<std::string, PlacedParameter, std::less<>> placed;
  for (const NamedShape& parameter : global_parameters(model))
    placed[parameter.name] = {parameter.sizes, place_of(model, parameter)};
  if (model.tie_word_embeddings) placed["lm_head.weight"] = placed["model.embed_tokens.weight"];
  return placed;
}

std::vector<NamedShape> file_tensors(const ModelSpec& model) {
  std::vector<NamedShape> tensors;
  std::set<std::string> names;
  for (const NamedShape& parameter : global_parameters(model)) {
    const FilePlace place = place_of(model, parameter);
    if (names.insert(place.tensor).second) tensors.push_back({place.tensor, place.slice.global_sizes()});
  }
  return tensors;
}

}  // namespace echelon
