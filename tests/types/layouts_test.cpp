// The types of a real step: every layout of the parity grid has none that does not fit.
#include "engine/layout_types.h"
#include "parity/layout.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

TEST(LayoutTypes, EveryLayoutOfTheParityGridFits) {
  std::vector<Layout> layouts = grid();
  for (const Layout& row : rows()) layouts.push_back(row);
  for (const Layout& layout : layouts)
    for (const char* dtype : {"float64", "bfloat16"}) {
      RunConfig config = config_of(layout);
      config.training.dtype = dtype;
      EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout) << " " << dtype;
    }
}

TEST(LayoutTypes, WhatIsFormedAgainFits) {
  using enum BlockOperation;
  for (const Layout& layout : rows())
    for (const BlockOperations& recompute : {attention_internals, whole_block, BlockOperations({o_proj}), BlockOperations({core_attn, mlp})}) {
      RunConfig config = config_of(layout);
      config.training.recompute = recompute;
      EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout);
      if (layout.pp == 1) continue;
      config.parallelism.pipeline_parallel_schedule = PipelineSchedule::zb_h1;
      EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout) << " in halves";
    }
}

}  // namespace
}  // namespace echelon::testing
