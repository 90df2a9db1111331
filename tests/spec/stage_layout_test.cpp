#include "spec/stage_layout.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

using testing::ElementsAre;
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

std::vector<std::int64_t> decoder_layers(const std::vector<StageLayers>& stages) {
  std::vector<std::int64_t> counts;
  for (const StageLayers& stage : stages) counts.push_back(stage.num_layers);
  return counts;
}

TEST(StageLayout, EmbeddingAndHeadCountAsLayersWhereDecoderLayersAreTooFew) {
  EXPECT_THAT(decoder_layers(stage_layout(3, 4)), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(decoder_layers(stage_layout(3, 5)), ElementsAre(0, 1, 1, 1, 0));
}

TEST(StageLayout, FollowsTheUser) {
  const auto layout = stage_layout(7, 3, {.counts = {1, 4, 2}, .letters = {}});  // decoder layers only
  EXPECT_EQ(layout[1], (StageLayers{.first_layer = 1, .num_layers = 4}));
  EXPECT_EQ(layout[2], (StageLayers{.first_layer = 5, .num_layers = 2, .has_head = true}));
  EXPECT_EQ(stage_layout(7, 3, {.counts = {2, 4, 3}, .letters = {}}), layout);  // embedding and head too
  EXPECT_EQ(stage_layout(7, 3, {.counts = {}, .letters = "Et|tttt|ttL"}), layout);
  EXPECT_THAT(decoder_layers(stage_layout(7, 3, {.counts = {1, 7, 1}, .letters = {}})), ElementsAre(0, 7, 0));
}

// Repeats of a letter, of a group and of a group within one, with blanks and commas as Megatron-LM's users write them.
TEST(StageLayout, ReadsMegatronsLetters) {
  const auto counts = [](std::int64_t num_layers, const std::string& letters) {
    const PipelineLayout layout{.counts = {}, .letters = letters};
    return decoder_layers(stage_layout(num_layers, num_stages_of(layout), layout));
  };
  EXPECT_THAT(counts(6, "E t*3|(t|)*2 t,L"), ElementsAre(3, 1, 1, 1));
  EXPECT_THAT(counts(8, "E|(tt|)*4L"), ElementsAre(0, 2, 2, 2, 2, 0));
  EXPECT_THAT(counts(12, "Et|((t|)*2tt|)*2tttL"), ElementsAre(1, 1, 1, 2, 1, 1, 2, 3));
  EXPECT_THAT(counts(61, "Et*3|(tt|)*29L"), testing::SizeIs(31));
}

struct BadLayout {
  std::vector<std::int64_t> counts;
  std::string letters;
  std::string sentence;
};

TEST(StageLayout, RefusesWhatLeavesAStageEmptyOrDoesNotAddUp) {
  EXPECT_THAT([] { (void)stage_layout(3, 6); },
              ThrowsMessage<Error>(HasSubstr("virtual_stages = 6 is more than model.num_hidden_layers = 3")));
  const BadLayout faults[] = {
      {{1, 2},
       {},
       "[1, 2] adds up to 3 layers but model.num_hidden_layers = 4, which are 6 with embedding and head (use [3, 3])"},
      {{6, 0}, {}, "has a stage with 0 layers"},
      {{7, -1}, {}, "has a stage with 7 layers"},
      {{4}, {}, "[4] names 1 stages but parallelism.pipeline_parallel_degree x virtual_stages make 2 (use [3, 3])"},
      {{}, "Ett|tL", "has 1 E, 3 t and 1 L"},
      {{},
       "tE|tttL",
       "has 1 E, 4 t and 1 L, which must be one E, model.num_hidden_layers = 4 t and one L in this order (use "
       "'Ett|ttL')"},
      {{},
       "Etttt||L",
       "names 3 stages but parallelism.pipeline_parallel_degree x virtual_stages make 2 (use 'Ett|ttL')"},
      {{}, "EttttL|", "has no layer on stage 1 of 2, and a stage without layers is not supported (use 'Ett|ttL')"},
      {{}, "Ettxt|L", "has 'x', which is not one of E, t, L, |, ( and ) at character 4"},
      {{}, "Etttt|mL", "has 'm', a layer of multi-token prediction"},
      {{}, "E(tt|)*L", "has a '*' without a number of times"},
      {{}, "E(tt|tL", "has a '(' without its ')'"},
      {{}, "Ett)|tL", "has ')' without a '('"},
      {{}, "Et*99999999999999999999|L", "has a '*' without a number of times"},
      {{}, "E((((t*1000)*1000)*1000)*1000)*1000|L", "has a '*' without a number of times"},
      {{}, "((((((((((((E", "more than 8 groups"},
  };
  for (const BadLayout& bad : faults) {
    const PipelineLayout layout{.counts = bad.counts, .letters = bad.letters};
    EXPECT_THAT([&] { (void)stage_layout(4, 2, layout); }, ThrowsMessage<Error>(HasSubstr(bad.sentence)));
  }
}

TEST(StageLayout, NamesALayoutInLettersThatIsAccepted) {
  for (std::int64_t layers = 1; layers <= 9; ++layers)
    for (int stages = 1; stages <= layers + 2; ++stages) try {
        (void)stage_layout(layers, stages, {.counts = {}, .letters = "L"});
        ADD_FAILURE() << layers << " layers on " << stages << " stages";
      } catch (const Error& error) {
        const std::string sentence = error.what(), before = "(use '";
        const std::string closest = sentence.substr(sentence.find(before) + before.size());
        EXPECT_EQ(stage_layout(layers, stages, {.counts = {}, .letters = closest.substr(0, closest.find('\''))}),
                  stage_layout(layers, stages))
            << sentence;
      }
}

}  // namespace
}  // namespace echelon
