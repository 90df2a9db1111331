// The types of a real step: no layout that runs has one that does not fit.
#include "engine/types/layout_types.h"
#include "parity/layout.h"
#include "schedule/generators/catalog.h"
#include "schedule/random_schedule.h"

#include <gtest/gtest.h>

#include <random>

namespace echelon::testing {
namespace {

const std::vector<BlockOperations> recomputations = {
    {}, attention_internals, whole_block, {BlockOperation::core_attn, BlockOperation::mlp}, {BlockOperation::o_proj}};

TEST(LayoutTypes, EveryLayoutOfTheParityGridFits) {
  std::vector<Layout> layouts = grid();
  for (const Layout& row : rows()) layouts.push_back(row);
  for (const Layout& row : context_rows()) layouts.push_back(row);
  for (const Layout& row : document_rows()) layouts.push_back(row);
  for (const Layout& row : context_method_rows()) layouts.push_back(row);
  for (const Layout& row : expert_rows()) layouts.push_back(row);
  for (const Layout& row : expert_parallel_rows()) layouts.push_back(row);
  for (const Layout& row : capacity_rows()) layouts.push_back(row);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    RunConfig config = config_of(layouts[i]);
    if (i % 2 == 1) config.training.dtype = DType::bfloat16;  // with master weights
    EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layouts[i]);
  }
}

TEST(LayoutTypes, ScratchOfTheDeviceIsOfNoLayout) {
  for (const Layout& layout : rows()) {
    RunConfig config = config_of(layout);
    config.training.dtype = DType::bfloat16;
    config.training.device = DeviceChoice::cuda;
    config.training.deterministic = false;
    EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout);
  }
}

TEST(LayoutTypes, WhatIsFormedAgainFits) {
  std::vector<Layout> layouts = rows();
  for (const Layout& row : context_rows()) layouts.push_back(row);
  for (const Layout& row : document_rows()) layouts.push_back(row);
  for (const Layout& row : context_method_rows()) layouts.push_back(row);
  for (const Layout& row : expert_rows()) layouts.push_back(row);
  for (const Layout& row : expert_parallel_rows()) layouts.push_back(row);
  for (const Layout& row : capacity_rows()) layouts.push_back(row);
  for (const Layout& layout : layouts)
    for (const BlockOperations& recompute : recomputations) {
      RunConfig config = config_of(layout);
      config.training.recompute = recompute;
      EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout);
      if (layout.pp == 1 || layout.virtual_stages > 0) continue;
      config.parallelism.pipeline_parallel_schedule = PipelineSchedule::zb_h1;
      EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout) << " in halves";
    }
}

/// A layout of up to 24 ranks with several stages a rank, and something recomputed.
Layout random_layout(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> values) { return values.begin()[random() % values.size()]; };
  Layout layout = {
      .replicate = one_of({1, 1, 2}), .shard = one_of({1, 2, 3}), .tp = one_of({1, 2, 4}), .pp = one_of({1, 2, 3})};
  layout.sequence_parallel = layout.tp > 1 && random() % 2 == 0;
  layout.microbatches = one_of({1, 2, 5});
  layout.family = static_cast<Family>(random() % 4);
  layout.tied = random() % 2 == 0;
  if (layout.shard > 1) layout.zero = one_of({1, 2, 3});
  if (layout.zero == 3) layout.reshard = static_cast<ReshardAfterForward>(random() % 3);
  return layout;
}

TEST(LayoutTypes, AnyOrderOfPassesAndAnythingRecomputedFits) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    Layout layout = random_layout(random);
    const int num_virtual = 1 + static_cast<int>(seed % 3);
    layout.layers = layout.pp * num_virtual + 1;
    RunConfig config = config_of(layout);
    config.training.recompute = recomputations[seed % recomputations.size()];
    if (seed % 4 == 0) config.training.grad_dtype = config.training.dtype = DType::bfloat16;
    if (seed % 8 == 0) config.training.reduce_dtype = DType::float32;
    const Schedule schedule = random_schedule({layout.pp, num_virtual, layout.microbatches, seed});
    EXPECT_NO_THROW(check_layout_types(Blueprint(config, schedule))) << name_of(layout) << " seed " << seed;
  }
}

TEST(LayoutTypes, EveryScheduleFits) {
  for (const ScheduleEntry& entry : all_schedules())
    for (const bool tied : {false, true})
      for (const bool sharded : {false, true}) {
        Layout layout = {.shard = sharded ? 2 : 1,
                         .tp = 2,
                         .pp = 2,
                         .sequence_parallel = sharded,
                         .schedule = entry.kind,
                         .microbatches = 4,
                         .tied = tied};
        layout.layers = layout.pp * entry.least_virtual + 1;
        EXPECT_NO_THROW(check_layout_types(Blueprint(config_of(layout)))) << name_of(layout) << " " << entry.name;
      }
}

TEST(LayoutTypes, OfAStepOfManyMicrobatchesAFewAreRehearsed) {
  for (const ScheduleEntry& entry : all_schedules()) {
    RunConfig config = config_of({.shard = 2, .pp = 2, .schedule = entry.kind, .microbatches = 64, .layers = 4});
    const Blueprint blueprint(for_rehearsal(config));
    EXPECT_EQ(blueprint.schedule().num_microbatches, 8) << entry.name;
    config.training.global_batch_size /= 16;
    EXPECT_EQ(for_rehearsal(config), config);
  }
}

}  // namespace
}  // namespace echelon::testing
