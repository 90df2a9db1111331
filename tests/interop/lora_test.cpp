// Adapters against PEFT, on the models of the fixtures: 20 steps of AdamW in float64, every trained value, and what
// merging gives. PEFT reads what is written here (make_lora_fixtures.py).
#include "checkpoint/convert_model.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/scratch_folder.h"
#include "files/file.h"
#include "interop/fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace echelon::testing {
namespace {

/// MODEL/ADAPTERS.
class LoraInterop : public ::testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path param_ = GetParam();
  Fixture fixture_{param_.parent_path().string()};
  std::filesystem::path folder_ = fixture_.folder / param_.filename();
  std::map<std::string, std::vector<double>> expected_ = read_all(folder_ / "expected.safetensors");
  AdapterReader adapter_{folder_, fixture_.model};

  [[nodiscard]] RunConfig config() const {
    RunConfig config = fixture_.config(DType::float64);
    config.training.global_batch_size = 4;
    config.training.max_norm = 1.0;
    config.lora = adapter_.config().lora;
    return config;
  }
};

double error(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!(std::abs(actual[i] - expected[i]) <= difference)) difference = std::abs(actual[i] - expected[i]);
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference / largest;
}

/// What a tensor of the files has of a parameter.
std::vector<double> part_of(const std::vector<double>& tensor, const PlacedParameter& at) {
  const FilePlace& place = at.place;
  const std::int64_t columns = at.sizes.num_dims() == 2 ? at.sizes[1] : 1;
  std::vector<double> part;
  place.rows.for_each_block({0, at.sizes[0]}, [&](Range block, std::int64_t in_file) {
    for (std::int64_t row = in_file; row < in_file + block.count; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        part.push_back(tensor.at(
            static_cast<std::size_t>(place.transposed ? column * place.sizes[1] + row : row * columns + column)));
  });
  return part;
}

// Claim (reference): Adapters and modules_to_save of nine families train as in PEFT, merge as with
//   merge_and_unload, and folders come back with the same bits.
// Bound: 20 steps in float64: losses to 1e-10, merged logits to 1e-9.
// Tests: LoraInterop
TEST_P(LoraInterop, TwentyStepsGivePeftsLossesAndAdapters) {
  Outcome outcome;
  outcome.adapters = &adapter_;
  run(fixture_, config(), expected_.at("train.lr"), outcome);
  EXPECT_LE(error(outcome.losses, expected_.at("train.loss")), 1e-10);
  EXPECT_LE(error(outcome.grad_norms, expected_.at("train.grad_norm")), 1e-9);
  const auto places = placed_adapters(fixture_.model, config().lora, adapter_.config().names);
  std::size_t num_compared = 0;
  for (const auto& [name, values] : outcome.weights.tensors()) {
    const auto at = places.find(name);
    if (at == places.end()) continue;
    const std::vector<double> part = part_of(expected_.at("trained." + at->second.place.tensor), at->second);
    EXPECT_LE(error(values, part), 1e-9) << name;
    num_compared += part.size();
  }
  std::size_t num_expected = 0;
  for (const auto& [name, values] : expected_)
    if (name.starts_with("trained.")) num_expected += values.size();
  EXPECT_EQ(num_compared, num_expected);
}

/// All axes but cp.
RunConfig layout_of(RunConfig config) {
  config.training.micro_batch_size = 1;
  config.training.recompute = parse_recompute("training.recompute", {"full"});
  config.parallelism.data_parallel_shard_degree = 2;
  config.parallelism.zero_level = 3;
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.sequence_parallel = true;
  config.parallelism.pipeline_parallel_degree = 2;
  return config;
}

// Merged with their base, they give the logits of PEFT's merge_and_unload.
TEST_P(LoraInterop, ALayoutTrainsAdaptersThatMergeAsPeftMerges) {
  const ScratchFolder scratch;
  Outcome outcome;
  outcome.adapters = &adapter_;
  outcome.adapters_folder = scratch / "adapter";
  run(fixture_, layout_of(config()), expected_.at("train.lr"), outcome);
  EXPECT_LE(error(outcome.losses, expected_.at("train.loss")), 1e-10);
  EXPECT_LE(error(outcome.grad_norms, expected_.at("train.grad_norm")), 1e-9);
  convert_model(fixture_.folder, scratch / "merged", {.dtype = DType::float64, .merged = scratch / "adapter"});
  Fixture merged = fixture_;
  merged.folder = scratch / "merged";
  Outcome of_merged;
  run(merged, merged.config(DType::float64), {}, of_merged);
  EXPECT_LE(error(of_merged.logits, expected_.at("merged.logits")), 1e-9);
  EXPECT_LE(error(of_merged.logits, expected_.at("logits")), 1e-9) << "of PEFT's model with adapters";
}

// A folder that PEFT wrote goes into eight ranks and out of them again. PEFT reads what is written here
// (make_lora_fixtures.py --written).
TEST_P(LoraInterop, PeftsFolderComesBackAsItWas) {
  RunConfig eight = layout_of(config());
  eight.training.dtype = DType::float32;
  const std::filesystem::path folder = std::filesystem::path(ECHELON_BINARY_DIR) / "interop_lora" / param_;
  std::filesystem::create_directories(folder.parent_path());
  Outcome written;
  written.adapters = &adapter_;
  written.adapters_folder = folder;
  run(fixture_, eight, {}, written);
  EXPECT_EQ(read_all(folder / "adapter_model.safetensors"), read_all(folder_ / "adapter_model.safetensors"));
  const LoraConfig again = AdapterReader(folder, fixture_.model).config().lora;
  EXPECT_EQ(again.target_modules, adapter_.config().lora.target_modules);
  EXPECT_EQ(saved_parameters(fixture_.model, again), saved_parameters(fixture_.model, adapter_.config().lora));
  EXPECT_EQ(again.scale(), adapter_.config().lora.scale());
}

std::map<std::string, std::string> raw_tensors(const std::filesystem::path& folder) {
  std::map<std::string, std::string> tensors;
  const File file = File::open_to_read(folder / "adapter_model.safetensors");
  for (const auto& [name, tensor] : read_safetensors_header(folder / "adapter_model.safetensors")) {
    std::string bytes(static_cast<std::size_t>(tensor.num_bytes), ' ');
    file.read_at(tensor.first_byte, bytes.data(), tensor.num_bytes);
    tensors[name] = tensor.format + bytes;
  }
  return tensors;
}

// Without training: every tensor keeps its dtype and its bits, in 16 bits too, and every field its value.
TEST_P(LoraInterop, ConvertKeepsPeftsFolder) {
  const ScratchFolder scratch;
  std::filesystem::copy(folder_, scratch / "peft");
  nlohmann::json fields = nlohmann::json::parse(read_text(folder_ / "adapter_config.json"));
  fields["base_model_name_or_path"] = fixture_.folder.string();
  write_text(scratch / "peft" / "adapter_config.json", fields.dump());
  write_text(scratch / "peft" / "tokenizer_config.json", "{}");
  convert_model(scratch / "peft", scratch / "same", {});
  EXPECT_EQ(raw_tensors(scratch / "same"), raw_tensors(scratch / "peft"));
  EXPECT_EQ(read_text(scratch / "same" / "tokenizer_config.json"), "{}");
  const nlohmann::json same = nlohmann::json::parse(read_text(scratch / "same" / "adapter_config.json"));
  for (const char* in_other_words : {"target_modules", "modules_to_save", "fan_in_fan_out"})
    fields.erase(in_other_words);
  for (const auto& [field, value] : fields.items()) EXPECT_EQ(same.at(field), value) << field;
  EXPECT_EQ(AdapterReader(scratch / "same", fixture_.model).config().lora.target_modules,
            adapter_.config().lora.target_modules);
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const std::filesystem::path narrow = scratch / std::string(name_of(dtype)), again = scratch / "again";
    convert_model(scratch / "peft", narrow, {.dtype = dtype});
    for (const auto& [name, is] : AdapterReader(narrow, fixture_.model).dtypes()) EXPECT_EQ(is, dtype) << name;
    convert_model(narrow, again, {});
    EXPECT_EQ(raw_tensors(again), raw_tensors(narrow));
    std::filesystem::remove_all(again);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraInterop,
                         ::testing::Values("llama/lora", "gpt2/lora", "phi3/lora", "gpt_neox/lora", "gemma2/lora",
                                           "llama/lora_saved", "gpt2/lora_saved", "phi3/lora_saved",
                                           "gpt_neox/lora_saved", "gemma2/lora_saved", "gemma3/lora",
                                           "gemma3/lora_saved", "mistral3/lora_saved", "qwen2_moe/lora",
                                           "qwen2_moe/lora_saved", "mixtral/lora", "olmoe/lora", "deepseek_v3/lora",
                                           "deepseek_v3_dense/lora"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace echelon::testing
