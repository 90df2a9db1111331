// A rank whose peers are late attends: it waits for what it sends only when that memory is needed.
#include "nn/context_parallel/key_gather.h"

#include "comm/thread/thread_world.h"
#include "nn/bench.h"
#include "spec/groups.h"

#include <gtest/gtest.h>

#include <chrono>
#include <semaphore>

namespace echelon::test {
namespace {

constexpr std::int64_t num_rows = 3, num_columns = 2;  // of a rank

/// Each of two ranks has half of a document, so that the second sees the first one's keys. `body` runs on both.
void on_two_ranks(const std::function<void(Context&, const TravellingRows&)>& body) {
  run_thread_ranks(MeshShape({{Axis::cp, 2}}), {.compute_permits = 2}, [&](Mesh& mesh) {
    const TokenSplit split = {.seq_len = 2 * num_rows, .cp = 2, .balancer = LoadBalancer::none};
    const DocumentOffsets documents = {0, 2 * num_rows};
    const KeyExchange exchange = {.method = ContextMethod::all_gather};
    TokenLists lists;
    lists.assign(split, documents);
    KeyBlocks blocks;
    blocks.assign(split, lists, exchange, mesh.rank());
    std::vector<KeyTransfers> transfers(1);
    transfers[0].assign(lists, blocks, exchange, mesh.rank(), {documents, 0});
    const std::unique_ptr<Ops> ops = make_reference_ops();
    Arena arena(1 << 16);
    Stack workspace = arena.region(0, 1 << 16);
    Context context{*ops, mesh, workspace, {}};
    body(context, {true, transfers});
  });
}

KeyBlock filled(Context& context, const Sizes& sizes, double value) {
  KeyBlock block;
  for (Tensor& x : block) {
    x = context.workspace.take(DType::float32, sizes);
    context.ops.fill(x, value);
  }
  return block;
}

std::vector<double> repeated(std::vector<double> values, std::size_t count) {
  std::vector<double> all;
  for (const double value : values) all.insert(all.end(), count, value);
  return all;
}

constexpr std::chrono::seconds long_enough(20);

TEST(KeyGather, ARankThatReceivesNothingDoesNotWaitForItsPeer) {
  std::binary_semaphore attends(0);
  on_two_ranks([&](Context& context, const TravellingRows& rows) {
    const int rank = context.mesh.rank();
    const KeyBlock own = filled(context, {1, 1, num_rows, num_columns}, rank + 1.0);
    KeyGather gather(context, rows);
    const KeyBlock full = gather.take_full(own);
    EXPECT_TRUE(rank == 0 || attends.try_acquire_for(long_enough)) << "rank 0 waits for rank 1";
    gather.start(full, own);
    for (const std::size_t i : {0, 1}) gather.wait(i);
    if (rank == 0) attends.release();
    gather.finish();
    for (const Tensor& x : full) EXPECT_EQ(numbers_of(x), repeated({1, rank == 0 ? 0.0 : 2.0}, num_rows * num_columns));
  });
}

TEST(GradientScatter, ARankThatReceivesNothingDoesNotWaitForItsPeer) {
  std::binary_semaphore has_sum(0);
  on_two_ranks([&](Context& context, const TravellingRows& rows) {
    const int rank = context.mesh.rank();
    const KeyBlock full = filled(context, {2, 1, num_rows, num_columns}, rank + 1.0),
                   own = filled(context, {1, 1, num_rows, num_columns}, 0);
    GradientScatter scatter(context, full, rows);
    EXPECT_TRUE(rank == 1 || has_sum.try_acquire_for(long_enough)) << "rank 1 waits for rank 0";
    scatter.start(own, full);
    scatter.wait();
    if (rank == 1) has_sum.release();
    scatter.finish();
    for (const Tensor& x : own) EXPECT_EQ(numbers_of(x), repeated({rank == 0 ? 3.0 : 2.0}, num_rows * num_columns));
  });
}

}  // namespace
}  // namespace echelon::test
