// The families in one list, and what several of them share.
#include "spec/families/family.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

std::string_view key_of(const FamilyField& field) {
  return std::visit([](const auto& each) { return each.key; }, field);
}

}  // namespace

const std::vector<FamilyDescription>& all_families() {
  static const std::vector<FamilyDescription> families = {
      describe_gpt2(),        describe_llama(),      describe_qwen2(),      describe_qwen3(),       describe_mistral(),
      describe_mixtral(),     describe_qwen3_moe(),  describe_dots1(),      describe_qwen2_moe(),   describe_phi3(),
      describe_starcoder2(),  describe_smollm3(),    describe_ministral3(), describe_olmo2(),       describe_olmo3(),
      describe_olmoe(),       describe_granite(),    describe_gemma2(),     describe_gemma3_text(), describe_gpt_neox(),
      describe_deepseek_v2(), describe_deepseek_v3()};
  return families;
}

const FamilyDescription& description_of(Family family) { return all_families().at(static_cast<std::size_t>(family)); }

std::string_view name_of(Family family) { return description_of(family).model_type; }

Family parse_family(std::string_view model_type) {
  std::vector<std::string_view> names;
  for (const FamilyDescription& family : all_families()) {
    if (family.model_type == model_type) return static_cast<Family>(names.size());
    names.push_back(family.model_type);
  }
  throw Error(fmt::format("model.model_type = '{}' is not a family that Echelon has; did you mean {}?", model_type,
                          closest_name(model_type, names)));
}

ModelSpec family_defaults(Family family) {
  ModelSpec model = description_of(family).fixed;
  model.family = family;
  return model;
}

void set_embedding_multiplier(ModelSpec& model) {
  if (description_of(model.family).multiplies_embedding_by_root_of_width)
    model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden_size));
}

std::string_view key_of(const FamilyDescription& family, std::int64_t ModelSpec::*member) {
  for (const FamilyField& field : family.fields)
    if (const auto* integer = std::get_if<IntegerField>(&field); integer != nullptr && integer->member == member)
      return integer->key;
  return {};
}

std::vector<FamilyField> fields_of_llama() {
  return {
      IntegerField{"hidden_size", &ModelSpec::hidden_size, max_width},
      IntegerField{"num_hidden_layers", &ModelSpec::num_hidden_layers, max_layers},
      IntegerField{"num_attention_heads", &ModelSpec::num_attention_heads, max_heads},
      IntegerField{"num_key_value_heads", &ModelSpec::num_key_value_heads, max_heads,
                   [](const ModelSpec& m) { return m.num_attention_heads; }},
      IntegerField{"head_dim", &ModelSpec::head_dim, max_heads, always<0>},
      IntegerField{"intermediate_size", &ModelSpec::intermediate_size, max_width},
      IntegerField{"vocab_size", &ModelSpec::vocab_size, max_rows},
      IntegerField{"max_position_embeddings", &ModelSpec::max_position_embeddings, max_rows},
      NumberField{"rms_norm_eps", &ModelSpec::norm_eps, 1e-6},
      NumberField{"initializer_range", &ModelSpec::initializer_range, 0.02},
      FlagField{"tie_word_embeddings", {&ModelSpec::tie_word_embeddings}},
      ActivationField{"hidden_act"},
      DropoutField{"attention_dropout"},
  };
}

std::vector<FamilyField> with(std::vector<FamilyField> fields, const std::vector<FamilyField>& more) {
  for (const FamilyField& field : more) {
    const auto same = std::ranges::find(fields, key_of(field), [](const FamilyField& f) { return key_of(f); });
    if (same == fields.end())
      fields.push_back(field);
    else
      *same = field;
  }
  return fields;
}

std::vector<FamilyField> without(std::vector<FamilyField> fields, std::string_view key) {
  std::erase_if(fields, [&](const FamilyField& field) { return key_of(field) == key; });
  return fields;
}

}  // namespace echelon
