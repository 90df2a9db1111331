#include "spec/stage_layout.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(StageLayout, CoversEveryLayerOnceAndEarlierStagesTakeTheRemainder) {
  for (std::int64_t layers = 1; layers <= 20; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto layout = stage_layout(layers, stages);
      ASSERT_EQ(static_cast<int>(layout.size()), stages);
      std::int64_t next = 0;
      for (int s = 0; s < stages; ++s) {
        const StageLayers& stage = layout[static_cast<std::size_t>(s)];
        EXPECT_EQ(stage.first_layer, next);
        EXPECT_EQ(stage.has_embedding, s == 0);
        EXPECT_EQ(stage.has_head, s == stages - 1);
        EXPECT_LE(layout.front().num_layers - stage.num_layers, 1);
        EXPECT_LE(stage.num_layers, layout[static_cast<std::size_t>(std::max(s - 1, 0))].num_layers);
        next += stage.num_layers;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(StageLayout, FollowsTheUser) {
  const auto layout = stage_layout(7, 3, {1, 4, 2});
  EXPECT_EQ(layout[1], (StageLayers{.first_layer = 1, .num_layers = 4}));
  EXPECT_EQ(layout[2], (StageLayers{.first_layer = 5, .num_layers = 2, .has_head = true}));
}

TEST(StageLayout, RefusesWhatLeavesAStageEmptyOrDoesNotAddUp) {
  EXPECT_THAT([] { (void)stage_layout(3, 4); }, ThrowsMessage<Error>(HasSubstr("pipeline_parallel_degree = 4 is more than model.num_hidden_layers = 3")));
  EXPECT_THAT([] { (void)stage_layout(4, 2, {1, 2}); }, ThrowsMessage<Error>(HasSubstr("nearest: [2, 2]")));
  EXPECT_THAT([] { (void)stage_layout(4, 2, {4, 0}); }, ThrowsMessage<Error>(HasSubstr("0 layers")));
  EXPECT_THAT([] { (void)stage_layout(4, 2, {4}); }, ThrowsMessage<Error>(HasSubstr("names 1 stages")));
}

}  // namespace
}  // namespace echelon
