// What ranks say of themselves stands by their rank, in whatever order the axes are.
#include "comm/gathered.h"
#include "comm/thread/thread_world.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

struct Words {
  std::int64_t rank = 0;
  std::int32_t axis = 0, other = 0;
};

TEST(Gathered, IsByRank) {
  for (const AxisOrder& order :
       {AxisOrder{}, parse_axis_order("order", {"pp-dp-tp"}), parse_axis_order("order", {"tp-dp-pp"})}) {
    const MeshShape shape({{Axis::cluster, 2}, {Axis::dp_replicate, 2}, {Axis::tp, 2}}, order);
    run_thread_ranks(shape, {.timeout_seconds = 60}, [&](Mesh& mesh) {
      const std::vector<Words> all = gathered(mesh, Words{mesh.rank(), mesh.coordinate(Axis::pp), 7});
      ASSERT_EQ(all.size(), 8U);
      for (int rank = 0; rank < 8; ++rank) {
        const Words& words = all[static_cast<std::size_t>(rank)];
        EXPECT_EQ(words.rank, rank);
        EXPECT_EQ(words.axis, shape.coordinate(rank, Axis::pp));
        EXPECT_EQ(words.other, 7);
      }
    });
  }
}

}  // namespace
}  // namespace echelon
