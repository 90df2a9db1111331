// What the operations of a program touch.
#include "blueprint/program_touches.h"

#include "small_config.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

namespace echelon {
namespace {

class Collected final : public TouchListener {
 public:
  explicit Collected(std::int64_t arena_bytes) : arena_bytes_(arena_bytes) {}
  void begins(const Action& action) override { action_ = action.id; }
  void performed(const OpRecord& operation, std::span<const Touch> touches) override {
    operations_[action_].push_back(operation);
    operations_[action_].back().num_kernels = 0;
    for (const Touch& touch : touches) {
      EXPECT_GE(touch.offset, 0);
      EXPECT_GT(touch.num_bytes, 0);
      EXPECT_LE(touch.offset + touch.num_bytes, arena_bytes_);
    }
  }
  void waited() override { ++num_waits_; }

  [[nodiscard]] const std::vector<OpRecord>& of(int action) { return operations_[action]; }
  [[nodiscard]] int num_waits() const { return num_waits_; }

 private:
  std::int64_t arena_bytes_;
  int action_ = 0, num_waits_ = 0;
  std::map<int, std::vector<OpRecord>> operations_;
};

TEST(ProgramTouches, AreOfTheOperationsOfTheTraceInsideTheArena) {
  for (const auto& [shard, tp, pp, cp] : std::vector<std::array<int, 4>>{
           {1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 2, 2, 1}}) {
    RunConfig config = testing::small_config();
    config.parallelism.data_parallel_shard_degree = shard;
    config.parallelism.tensor_parallel_degree = tp;
    config.parallelism.sequence_parallel = tp > 1;
    config.parallelism.pipeline_parallel_degree = pp;
    config.parallelism.context_parallel_degree = cp;
    const Blueprint blueprint(config);
    for (const RankBlueprint& rank : blueprint.pipeline_ranks()) {
      SCOPED_TRACE(fmt::format("shard {} tp {} pp {} cp {}, rank {}", shard, tp, pp, cp, rank.rank()));
      Collected first(rank.arena_bytes()), second(rank.arena_bytes());
      TouchListener* const both[] = {&first, &second};
      execute_on_addresses(blueprint, rank, ProgramKind::training, both);
      for (const Action& action : rank.program(ProgramKind::training)) {
        std::vector<OpRecord> traced = rank.trace(ProgramKind::training).of(action).operations();
        for (OpRecord& each : traced) each.num_kernels = 0;  // counted by traces alone
        EXPECT_EQ(first.of(action.id), traced) << to_string(action);
        EXPECT_EQ(second.of(action.id), traced) << to_string(action);
      }
      EXPECT_EQ(first.num_waits() > 0, shard * tp * pp * cp > 1);
    }
  }
}

}  // namespace
}  // namespace echelon
