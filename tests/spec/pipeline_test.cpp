// From the keys of a config to a schedule.
#include "spec/config/pipeline.h"
#include "scratch_folder.h"

#include "base/error.h"
#include "schedule/simulation/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Pipeline : testing::Test {
  RunConfig config;
  Pipeline() {
    config.parallelism.pipeline_parallel_degree = 2;
    config.training.global_batch_size = 8;
    config.training.micro_batch_size = 2;
  }
  ParallelConfig& p = config.parallelism;

  std::string write(const std::string& text) {
    const std::string path = scratch_folder() + "/pipeline_test.csv";
    std::ofstream(path) << text;
    return path;
  }
  void expect_refusal(const std::string& sentence) const {
    EXPECT_THAT([&] { (void)num_pipeline_stages(config); }, ThrowsMessage<Error>(HasSubstr(sentence)));
    EXPECT_THAT([&] { (void)pipeline_schedule(config); }, ThrowsMessage<Error>(HasSubstr(sentence)));
  }
};

TEST_F(Pipeline, CountsMicrobatchesAndStages) {
  for (const ScheduleEntry& entry : all_schedules()) {
    p.pipeline_parallel_schedule = entry.kind;
    const Schedule schedule = pipeline_schedule(config);
    EXPECT_EQ(schedule.num_microbatches, 4);
    EXPECT_EQ(schedule.num_stages, 2 * entry.default_virtual);
    EXPECT_EQ(num_pipeline_stages(config), schedule.num_stages);
  }
}

TEST_F(Pipeline, VirtualStagesAreTheUsersOrTheLayouts) {
  p.pipeline_parallel_schedule = PipelineSchedule::interleaved_one_f_one_b;
  p.virtual_stages = 3;
  EXPECT_EQ(pipeline_schedule(config).num_stages, 6);
  p.virtual_stages = 0;
  p.pipeline_parallel_layout.letters = "E(t|)*7L";
  EXPECT_EQ(pipeline_schedule(config).num_stages, 8);
  p.pipeline_parallel_layout.letters = "E|t|L";  // useless for two ranks: the layout's own check refuses it
  EXPECT_EQ(num_pipeline_stages(config), 4);
  p.pipeline_parallel_schedule = PipelineSchedule::one_f_one_b;
  p.pipeline_parallel_layout = {.counts = {1, 2, 2, 1}, .letters = {}};
  expect_refusal(
      "parallelism.virtual_stages = 2 is not supported for parallelism.pipeline_parallel_schedule = '1F1B' (use 1)");
}

TEST_F(Pipeline, TheSearchedOnesDependOnTimesAndMemoryOfTheConfig) {
  p.pipeline_parallel_schedule = PipelineSchedule::zb_2p;
  config.training.global_batch_size = 24;
  const Schedule even = pipeline_schedule(config);
  p.pipeline_forward_ms = p.pipeline_backward_input_ms = 2;
  p.pipeline_p2p_ms = 0.5;
  const Schedule uneven = pipeline_schedule(config);
  EXPECT_NE(even.ranks, uneven.ranks);
  p.pipeline_memory_limit = 1;
  const std::vector<double> peaks = peak_memory(pipeline_schedule(config), 1);
  EXPECT_EQ(*std::max_element(peaks.begin(), peaks.end()), 1);
  p.pipeline_memory_limit = 0.5;
  expect_refusal("parallelism.pipeline_memory_limit = 0.5 has no room for a microbatch (use 1)");
}

// Every schedule meets a limit or refuses it: 1F1B stores min(m, p) microbatches on the first rank, GPipe all of them.
TEST_F(Pipeline, AnyScheduleKeepsToTheLimitOfMemory) {
  p.pipeline_memory_limit = 2;
  EXPECT_NO_THROW((void)pipeline_schedule(config));
  const auto expect_limit = [&](const std::string& sentence) {
    EXPECT_THAT([&] { (void)pipeline_schedule(config); },
                ThrowsMessage<Error>(HasSubstr("parallelism.pipeline_memory_limit = " + sentence)));
  };
  p.pipeline_parallel_schedule = PipelineSchedule::gpipe;
  expect_limit("2 is less than the 4 microbatches in flight on rank 0 (use 4)");
  p.pipeline_parallel_schedule = PipelineSchedule::dualpipe_v;
  expect_limit("2 is less than the 2.5 microbatches in flight on rank 0 (use 2.5)");
  p.pipeline_parallel_schedule_csv = write("0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  expect_limit("2 is less than the 3 microbatches in flight on rank 0 (use 3)");
  p.pipeline_memory_limit = 3;
  EXPECT_NO_THROW((void)pipeline_schedule(config));
}

TEST_F(Pipeline, AFileMustFitTheConfig) {
  p.pipeline_parallel_schedule_csv = write("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  EXPECT_EQ(pipeline_schedule(config).num_stages, 2);
  p.virtual_stages = 2;
  expect_refusal("has 2 stages on 2 ranks, but parallelism.virtual_stages = 2 (use 0)");
  p.virtual_stages = 0;
  config.training.global_batch_size = 6;
  expect_refusal("has 4 microbatches, but training.global_batch_size = 6 makes 3 of each rank (use 8)");
  p.pipeline_parallel_degree = 3;
  expect_refusal("has 2 rows, one for each rank, but parallelism.pipeline_parallel_degree = 3 (use 2)");
  p.pipeline_parallel_schedule_csv = "/nonexistent.csv";
  expect_refusal("parallelism.pipeline_parallel_schedule_csv = '/nonexistent.csv' cannot be read");
  p.pipeline_parallel_schedule_csv = scratch_folder();
  expect_refusal("cannot be read");
}

TEST_F(Pipeline, DualPipeVWantsTwoMicrobatchesARank) {
  p.pipeline_parallel_schedule = PipelineSchedule::dualpipe_v;
  config.training.global_batch_size = 6;
  expect_refusal(
      "parallelism.pipeline_parallel_schedule = 'DualPipeV' on 2 ranks needs at least 4 microbatches, but "
      "training.global_batch_size makes 3 (use training.global_batch_size = 8)");
}

}  // namespace
}  // namespace echelon
