// A mixture that is made of a dense model gives the dense model's logits, which are PyTorch's, and is trained on.
#include "checkpoint/convert_model.h"
#include "checkpoint/model_reader.h"
#include "interop/comparison.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

class UpcycledLogits : public ::testing::TestWithParam<const char*> {};

TEST_P(UpcycledLogits, AreThoseOfTheDenseModel) {
  const ScratchFolder scratch;
  Fixture fixture(GetParam());
  convert_model(fixture.folder, scratch / "mixture", {.dtype = DType::float32, .upcycling = {4, 2}});
  fixture.folder = scratch / "mixture";
  fixture.model = read_model_spec(fixture.folder);
  Outcome first;
  run(fixture, fixture.config(DType::float64), {0.0}, first);
  EXPECT_LE(echelon::testing::error(first.logits, fixture.expected.at("logits"), 0), 1e-10);
  RunConfig config = fixture.config(DType::float64);
  config.training.global_batch_size = 4;
  config.training.micro_batch_size = 1;
  config.training.max_norm = 1.0;
  config.parallelism.data_parallel_shard_degree = 4;
  config.parallelism.expert_parallel_degree = 2;
  Outcome trained;
  run(fixture, config, fixture.expected.at("train.lr"), trained);
  EXPECT_NEAR(trained.losses.front(), fixture.expected.at("train.loss").front(), 1e-10);
  EXPECT_LT(trained.losses.back(), trained.losses.front());
}

INSTANTIATE_TEST_SUITE_P(Families, UpcycledLogits, ::testing::Values("llama", "mistral", "qwen3"));

}  // namespace
}  // namespace echelon::testing
