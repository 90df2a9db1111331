// A run on a model of images and text trains its language model, and saves it inside the rest or alone.
#include "blueprint/small_config.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/hf/wrapped_weights.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/scratch_folder.h"
#include "data/indexed_dataset.h"
#include "files/file.h"
#include "train/train.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

RunConfig run_on(const std::filesystem::path& model, const ScratchFolder& scratch) {
  IndexedDatasetWriter writer((scratch / "train").string(), TokenType::u16);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 300; ++i) tokens.push_back(i * i % 23);
  writer.add_document(tokens);
  writer.publish();
  RunConfig config = testing::small_config();
  config.model = read_model_spec(model);
  config.checkpoint.initial_load_path = model.string();
  config.data.path = (scratch / "train").string();
  config.training.steps = 2;
  config.training.seq_len = 8;
  config.parallelism.tensor_parallel_degree = 2;
  config.output.dir = (scratch / "out").string();
  return config;
}

std::string bytes_of(const std::filesystem::path& folder, const std::string& tensor) {
  const WeightFolder weights(folder);
  const WeightFolder::Entry* entry = weights.find(tensor);
  if (entry == nullptr) return "none";
  std::string bytes(static_cast<std::size_t>(entry->tensor.num_bytes), ' ');
  File::open_to_read(entry->path).read_at(entry->tensor.first_byte, bytes.data(), entry->tensor.num_bytes);
  return bytes;
}

TEST(WrapperRun, SavesTheTrainedWeightsNextToThoseOfImages) {
  const std::filesystem::path model = std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/fixtures/gemma3";
  const ScratchFolder scratch;
  RunConfig config = run_on(model, scratch);
  const std::filesystem::path trained = train(config, {}).model_folder;
  const WrappedWeights wrapped = wrapped_weights_of(model);
  EXPECT_EQ(wrapped_weights_of(trained).others.size(), wrapped.others.size());
  EXPECT_GT(wrapped.others.size(), 10U);
  for (const auto& [name, entry] : wrapped.others) EXPECT_EQ(bytes_of(trained, name), bytes_of(model, name)) << name;
  const std::string norm = "model.norm.weight", norm_of_wrapper = "language_model." + norm;
  EXPECT_NE(bytes_of(trained, norm_of_wrapper), bytes_of(model, norm_of_wrapper));
  EXPECT_EQ(ModelReader(trained).spec(), config.model);

  convert_model(scratch / "out/checkpoint/step-2", scratch / "alone", {.text_only = true});
  EXPECT_EQ(bytes_of(scratch / "alone", norm), bytes_of(trained, norm_of_wrapper));
  config.checkpoint.text_only = true;
  config.output.dir = (scratch / "text").string();
  const std::filesystem::path text = train(config, {}).model_folder;
  EXPECT_EQ(bytes_of(text, norm), bytes_of(trained, norm_of_wrapper));
  EXPECT_EQ(WeightFolder(text).entries().size() + wrapped.others.size(), WeightFolder(model).entries().size());
}

}  // namespace
}  // namespace echelon
