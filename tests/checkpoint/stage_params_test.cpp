// The layers of all tensor- and pipeline-parallel ranks together hold the model's parameters, which are written from
// their slices and read back.
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "nn/decoder/stage.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

struct Layout {
  int tp;
  int pp;
};

/// The stages of all ranks of a layout, tp fastest, without memory.
std::vector<std::unique_ptr<Stage>> stages_of(const ModelSpec& model, const Layout& layout) {
  std::vector<std::unique_ptr<Stage>> stages;
  for (const StageLayers& layers : stage_layout(model.num_hidden_layers, layout.pp))
    for (int tp_rank = 0; tp_rank < layout.tp; ++tp_rank) {
      LayerOptions options;
      options.model = model;
      options.seq_len = 4;
      options.tp = layout.tp;
      options.tp_rank = tp_rank;
      options.divides_expert_features = layout.tp > 1;
      stages.push_back(std::make_unique<Stage>(options, layers));
    }
  return stages;
}

std::vector<Param*> params_of(Stage& stage) {
  std::vector<Param*> params;
  for (int unit = 0; unit <= stage.num_units(); ++unit)
    for (Param* param : stage.unit_params(unit)) params.push_back(param);
  return params;
}

void expect_round_trip(const ModelSpec& model, const Layout& layout) {
  const ScratchFolder scratch;
  const auto stages = stages_of(model, layout);
  std::map<std::string, Sizes> seen;
  ModelWriter writer({.folder = scratch / "model", .model = model});
  writer.begin();
  for (std::size_t rank = 0; rank < stages.size(); ++rank)
    for (const Param* param : params_of(*stages[rank])) {
      seen[param->name] = param->global_sizes();
      // For the last stage.
      const bool is_tied_copy =
          rank >= static_cast<std::size_t>(layout.tp) && param->name == "model.embed_tokens.weight";
      if (!param->is_first_copy || is_tied_copy) continue;
      writer.write(param->name, param->slice, DType::float64,
                   slice_values(*param, whole({param->name, param->global_sizes()})).data());
    }
  writer.finish();
  EXPECT_EQ(writer.num_written(), model.num_parameters());  // each element once

  const auto expected = global_parameters(model);
  EXPECT_EQ(seen.size(), expected.size());
  for (const NamedShape& parameter : expected) EXPECT_EQ(seen[parameter.name], parameter.sizes) << parameter.name;
  const ModelReader reader(scratch / "model");
  for (const NamedShape& parameter : expected) {
    std::vector<double> values(static_cast<std::size_t>(parameter.sizes.num_elements()));
    reader.read(parameter.name, TensorSlice(parameter.sizes), DType::float64, values.data());
    EXPECT_EQ(values, whole(parameter)) << parameter.name << " from tp " << layout.tp << " pp " << layout.pp;
  }
  for (const auto& stage : stages)
    for (const Param* param : params_of(*stage)) {
      std::vector<double> values(static_cast<std::size_t>(param->local_sizes().num_elements()), 9.0);
      reader.read(param->name, param->slice, DType::float64, values.data());
      EXPECT_EQ(values, slice_values(*param, whole({param->name, param->global_sizes()}))) << param->name;
    }
}

TEST(StageParams, AreTheModelsInEveryLayout) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3, Family::mixtral,
                              Family::qwen3_moe, Family::dots1, Family::olmoe, Family::qwen2_moe})
    for (const bool tied : {false, true}) {
      ModelSpec model = tiny_model(family, tied);
      model.num_attention_heads = 6;
      model.num_key_value_heads = family == Family::gpt2 ? 6 : 2;
      model.head_dim = 2;
      for (const int tp : {1, 2, 3, 4, 6})
        for (const int pp : {1, 2}) expect_round_trip(model, {tp, pp});
    }
}

}  // namespace
}  // namespace echelon
