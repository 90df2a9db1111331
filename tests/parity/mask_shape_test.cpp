// Which ranges of keys have a shape, and which of them a batch marks.
#include "engine/batch/mask_shape.h"

#include "engine/batch/rank_batch.h"
#include "parity/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace echelon::testing {
namespace {

using enum MaskShape::Kind;

TEST(MaskShape, IsThatOfWholeBlocksAndCausalMasks) {
  using Ranges = std::vector<std::int32_t>;
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 0}, Ranges{1, 2, 3}), (MaskShape{causal, 0, 3}));
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 0}, Ranges{5, 6, 7}), (MaskShape{causal, 0, 7}));
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 0}, Ranges{4, 4, 4}), (MaskShape{whole, 0, 4}));
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 0, 0}, Ranges{0, 0, 4, 4}), (MaskShape{whole, 2, 4}));
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 0}, Ranges{0, 0, 0}), MaskShape()) << "nothing is seen";
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 2}, Ranges{1, 2, 3}), MaskShape()) << "a boundary";
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 2}, Ranges{1, 2, 2}), MaskShape()) << "a row of padding";
  EXPECT_EQ(mask_shape_of(Ranges{0, 0, 0}, Ranges{1, 3, 4}), MaskShape()) << "stripes";
}

/// Tokens of sequences of which every second one has two documents.
class Halves final : public BatchSource {
 public:
  void read(std::int64_t /*sequence*/, std::int64_t seq_len, std::int32_t* tokens,
            std::int32_t* targets) const override {
    std::fill_n(tokens, seq_len, 1);
    std::fill_n(targets, seq_len, 1);
  }
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    for (std::int64_t i = 0; i < seq_len; ++i)
      starts[i] = sequence % 2 == 1 && i >= seq_len / 2 ? static_cast<std::int32_t>(seq_len / 2) : 0;
  }
};

/// Of a rank, of one sequence in each of two microbatches.
std::vector<MaskShape> shapes_of(const Layout& layout, int rank, bool has_graphs = false) {
  RunConfig config = config_of(layout);
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = 2;
  config.training.cuda_graphs = has_graphs;
  const Blueprint blueprint(config);
  const RankBlueprint of_rank = blueprint.rank(rank);
  RankBatch batch(config, of_rank.part(), rank);
  const Halves source;
  batch.read(source, 0);
  const MaskShape* const shapes = batch.values().mask_shapes;
  return {shapes, shapes + 2 * of_rank.part().num_key_ranges()};
}

using Shapes = std::vector<MaskShape>;

// 8 tokens of a rank: its chunk of the head and its chunk of the tail.
TEST(MaskShape, OfHeadAndTailIsKnownForEveryBlock) {
  const Layout ring = {.cp = 2, .seq_len = 16};
  EXPECT_EQ(shapes_of(ring, 0), (Shapes{{causal, 0, 8}, {whole, 4, 8}, {causal, 0, 8}, {whole, 4, 8}}));
  EXPECT_EQ(shapes_of(ring, 1), (Shapes{{whole, 0, 4}, {causal, 0, 8}, {whole, 0, 4}, {causal, 0, 8}}));
  EXPECT_EQ(shapes_of(ring, 0, true), shapes_of(ring, 0)) << "no data decide";
}

TEST(MaskShape, OfStripesIsCausal) {
  const Layout stripes = {.cp = 2, .balancer = LoadBalancer::striped, .seq_len = 16};
  EXPECT_EQ(shapes_of(stripes, 0), (Shapes{{causal, 0, 8}, {causal, 1, 7}, {causal, 0, 8}, {causal, 1, 7}}));
  EXPECT_EQ(shapes_of(stripes, 1), (Shapes{{causal, 0, 8}, {causal, 0, 8}, {causal, 0, 8}, {causal, 0, 8}}));
}

TEST(MaskShape, OfDocumentsIsThatOfSequencesWithoutABoundary) {
  const Layout documents = {.documents = true, .seq_len = 16}, ring = {.documents = true, .cp = 2, .seq_len = 16};
  EXPECT_EQ(shapes_of(documents, 0), (Shapes{{causal, 0, 16}, {}}));
  EXPECT_EQ(shapes_of(ring, 1), (Shapes{{whole, 0, 4}, {causal, 0, 8}, {}, {}}));
  EXPECT_EQ(shapes_of(documents, 0, true), Shapes(2)) << "a graph repeats the kernels of its first batch";
}

TEST(MaskShape, OfWindowsIsUnknown) {
  EXPECT_EQ(shapes_of({.family = Family::mistral, .cp = 2, .window = 5, .seq_len = 16}, 0), Shapes(4));
}

}  // namespace
}  // namespace echelon::testing
