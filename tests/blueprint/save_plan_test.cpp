// The plan of a checkpoint's files: all ranks' from shared parts of the model, next to each rank's own; and how large
// it becomes.
#include "blueprint/save_plan.h"

#include "base/error.h"
#include "blueprint/small_config.h"
#include "checkpoint/state/state_file_plan.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <set>

namespace {

std::atomic<std::int64_t> num_allocations = 0;

void* counted(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace echelon::testing {
namespace {

/// Copies in every direction, padding, a tied weight, and shards that cut rows.
std::vector<RunConfig> layouts() {
  std::vector<RunConfig> all(7, small_config());
  for (RunConfig& config : all) {
    config.model.num_key_value_heads = 2;
    config.model.vocab_size = 131;
    config.model.tie_word_embeddings = true;
    config.training.global_batch_size = 24;
    config.training.micro_batch_size = 1;
  }
  const auto at = [&](std::size_t i) -> ParallelConfig& { return all[i].parallelism; };
  at(1).data_parallel_replicate_degree = 4;
  at(2).data_parallel_shard_degree = 3;
  at(3).data_parallel_shard_degree = 4, at(3).zero_level = 3, all[3].training.dtype = DType::bfloat16;
  at(4).data_parallel_replicate_degree = at(4).data_parallel_shard_degree = at(4).tensor_parallel_degree = 2;
  at(5).tensor_parallel_degree = 4, at(5).sequence_parallel = true, at(5).data_parallel_shard_degree = 2;
  at(6).pipeline_parallel_degree = 2, at(6).data_parallel_replicate_degree = 2;
  at(6).order = AxisOrder(std::vector{Axis::pp, Axis::dp_replicate, Axis::tp, Axis::dp_shard});
  return all;
}

/// What a rank finds when it makes its own part of the model and the text of its header.
std::optional<PlannedFile> found_by(const Blueprint& blueprint, int rank, const Manifest& manifest) {
  const auto slices = state_slices(make_model_part(blueprint.config(), blueprint.schedule(), rank));
  if (slices.empty()) return std::nullopt;
  const StateFilePlan plan(slices);
  PlannedFile file = {.rank = rank,
                      .num_bytes = std::ssize(plan.header(std::vector<Digest>(plan.num_blocks()))) + plan.data_bytes()};
  std::set<std::int64_t> numbers;
  for (const StateSlice& slice : slices)
    numbers.insert(std::ranges::find(manifest.parameters, slice.parameter, &Manifest::Parameter::name) -
                   manifest.parameters.begin());
  for (const std::int64_t number : numbers) {
    if (!file.parameters.empty() && file.parameters.back().first + file.parameters.back().count == number)
      ++file.parameters.back().count;
    else
      file.parameters.push_back({number, 1});
  }
  return file;
}

TEST(SavePlan, OfAllRanksIsWhatEachRankFinds) {
  const std::vector<RunConfig> configs = layouts();
  for (std::size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE(i);
    const RunConfig& config = configs[i];
    const Blueprint blueprint(config);
    const SavePlan plan(blueprint);
    const Manifest manifest = plan.manifest(1, {});
    std::vector<PlannedFile> expected;
    std::int64_t num_elements = 0;
    for (int rank = 0; rank < blueprint.mesh().num_ranks(); ++rank) {
      const auto found = found_by(blueprint, rank, manifest);
      EXPECT_EQ(planned_file(blueprint, rank), found);
      if (found) expected.push_back(*found);
      for (const StateSlice& slice : state_slices(make_model_part(config, blueprint.schedule(), rank)))
        for (const SliceRectangle& rectangle : rectangles_of(slice.slice)) num_elements += rectangle.num_elements();
    }
    EXPECT_EQ(plan.files(), expected);
    EXPECT_EQ(num_elements, 3 * config.model.num_parameters()) << "each number once";
    EXPECT_THAT(manifest.states,
                ::testing::ElementsAre(std::pair("weight", DType::float32), std::pair("exp_avg", DType::float32),
                                       std::pair("exp_avg_sq", DType::float32)));
  }
}

/// Of the text of a manifest whose numbers are as long as those of a run of years.
std::int64_t late_manifest_bytes(Manifest manifest) {
  constexpr std::int64_t many = 1'000'000'000'000'000;
  manifest.scalars = {.step = many,
                      .skipped_steps = many,
                      .loss_scale = 65536.125,
                      .steps_since_scale_changed = many,
                      .first_lr_step = many,
                      .sequences = many,
                      .seq_len = many,
                      .data = {many, many, {}, {}}};
  for (Manifest::File& file : manifest.files) file.header = {~0ULL, ~0ULL};
  manifest.products = {{"bfloat16", "widened"},
                       {"float16", "widened"},
                       {"float32", "openblas/SkylakeX"},
                       {"float64", "openblas/SkylakeX"}};
  return std::ssize(to_text(manifest));
}

RunConfig large_config(int zero_level, const std::string& num_shards) {
  return read_run_config({.path = ECHELON_SOURCE_DIR "/examples/textbook/llama3-405b.toml",
                          .arguments = {"--parallelism.zero_level=" + std::to_string(zero_level),
                                        "--parallelism.data_parallel_shard_degree=" + num_shards},
                          .read_model = {}});
}

template <class F>
std::int64_t allocations_of(const F& work) {
  const std::int64_t before = num_allocations;
  work();
  return num_allocations - before;
}

// Llama-3 405B on 16,384 ranks, without data.
TEST(SavePlan, ManifestOf16384RanksIsSmall) {
  for (const int zero_level : {1, 3}) {
    const Blueprint blueprint(large_config(zero_level, "128"));
    const SavePlan plan(blueprint);
    EXPECT_EQ(std::ssize(plan.files()), 16384);
    const std::int64_t late = late_manifest_bytes(plan.manifest(1, {{.attempt = 1}}));
    EXPECT_LE(late, plan.most_manifest_bytes());
    EXPECT_GE(late, plan.most_manifest_bytes() - 100) << "a bound, but no more";
    EXPECT_LT(plan.most_manifest_bytes(), 8'000'000);
    const double data_bytes = 12.0 * static_cast<double>(blueprint.config().model.num_parameters());
    EXPECT_GT(static_cast<double>(plan.num_bytes()), data_bytes);
    EXPECT_LT(static_cast<double>(plan.num_bytes()), 1.001 * data_bytes);
    EXPECT_LT(static_cast<double>(plan.most_bytes()), 1.05 * data_bytes / 16384) << "evenly";
  }
}

TEST(SavePlan, AManifestThatNoReaderTakesIsRefused) {
  EXPECT_NO_THROW(require_readable(std::int64_t{64} << 20));
  EXPECT_THAT([] { require_readable((std::int64_t{64} << 20) + 1); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("pipeline_parallel_degree")));
}

TEST(SavePlan, OfOneRankKnowsNothingOfTheOthers) {
  const Blueprint few(large_config(1, "8")), many(large_config(1, "128"));
  constexpr int rank = 5;
  const std::int64_t of_few = allocations_of([&] { (void)planned_file(few, rank); }),
                     of_many = allocations_of([&] { (void)planned_file(many, rank); });
  EXPECT_GT(of_many, 100);
  EXPECT_LE(of_many, of_few) << "1,024 and 16,384 ranks";
  // Ranks of one stage and one part of the tensors share a part of the model: 128 of them, and what each file needs.
  const std::int64_t num_files = 16384, num_parts = 128;
  EXPECT_LT(allocations_of([&] { (void)SavePlan(many); }), num_parts * of_many + num_files * 120);
}

}  // namespace
}  // namespace echelon::testing
