// What programs do with communicators: many operations at once, waits in any order, polling, subgroups, large buffers,
// and the count of bytes.
#include "base/error.h"
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "comm/trace/trace_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace echelon::conformance {
namespace {

// Three chunks of the thread transport, and a size no power of two divides.
constexpr std::int64_t several_chunks = 40001;

std::vector<Buffer> buffers(int num_buffers, int rank) {
  std::vector<Buffer> x;
  for (int i = 0; i < num_buffers; ++i)
    x.push_back(numbers(DType::float32, i % 3 == 0 ? several_chunks : 100 + i, rank, i));
  return x;
}

void expect_reduced(const std::vector<Buffer>& x, int n) {
  for (std::size_t i = 0; i < x.size(); ++i)
    expect_same(x[i], reduced(DType::float32, x[i].num_elements(), n, ReduceOp::sum, static_cast<int>(i)),
                fmt::format("all_reduce {} of {} ranks", i, n));
}

// The mesh of 32 ranks that has every kind of group.
MeshShape mesh_of_32() { return MeshShape({{Axis::dp_replicate, 2}, {Axis::pp, 4}, {Axis::tp, 4}}); }

}  // namespace

void many_operations_may_be_in_flight(const RunRanks& run) {
  for (const int n : {2, 5})
    run(line(n), [&](Mesh& mesh) {
      Comm& comm = mesh.comm(line_group);
      constexpr int num_transfers = 50;
      std::vector<Buffer> x = buffers(40, comm.rank()), sent, received;
      for (int i = 0; i < num_transfers; ++i) {
        sent.push_back(numbers(DType::float64, 17 * i, comm.rank(), i));
        received.emplace_back(DType::float64, 17 * i);
      }
      std::vector<Pending> pending;
      for (Buffer& buffer : x) pending.push_back(comm.all_reduce(buffer.tensor(), ReduceOp::sum));
      const int next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
      for (Buffer& buffer : sent) pending.push_back(comm.send(buffer.tensor(), next));
      for (Buffer& buffer : received) pending.push_back(comm.receive(buffer.tensor(), previous));
      for (Pending& operation : pending) operation.wait();
      expect_reduced(x, n);
      for (int i = 0; i < num_transfers; ++i)
        expect_same(received[static_cast<std::size_t>(i)], numbers(DType::float64, 17 * i, previous, i),
                    fmt::format("transfer {}", i));
    });
}

void ranks_may_wait_in_different_orders(const RunRanks& run) {
  for (const int n : {2, 4, 8})
    run(line(n), [&](Mesh& mesh) {
      Comm& comm = mesh.comm(line_group);
      for (unsigned round = 0; round < 5; ++round) {
        std::vector<Buffer> x = buffers(8, comm.rank());
        std::vector<Pending> pending;
        for (Buffer& buffer : x) pending.push_back(comm.all_reduce(buffer.tensor(), ReduceOp::sum));
        std::shuffle(pending.begin(), pending.end(), std::mt19937(round * 100 + static_cast<unsigned>(comm.rank())));
        for (Pending& operation : pending) operation.wait();
        expect_reduced(x, n);
      }
    });
}

void polling_alone_finishes(const RunRanks& run) {
  for (const int n : {2, 9})
    run(line(n), [&](Mesh& mesh) {
      Comm& comm = mesh.comm(line_group);
      std::vector<Buffer> x = buffers(4, comm.rank());
      std::vector<Pending> pending;
      for (Buffer& buffer : x) pending.push_back(comm.all_reduce(buffer.tensor(), ReduceOp::sum));
      for (bool all_done = false; !all_done;) {
        mesh.poll();
        all_done = true;
        for (Pending& operation : pending) all_done = operation.poll() && all_done;
      }
      expect_reduced(x, n);
    });
}

void groups_are_those_of_the_mesh(const RunRanks& run) {
  const Group groups[] = {{{Axis::tp}},
                          {{Axis::pp}},
                          {data_axes},
                          {world_axes},
                          {{Axis::pp, Axis::tp}},
                          {{Axis::cp}},
                          {{Axis::pp}, Group::Part::ends},
                          {{Axis::tp}, Group::Part::block, 2}};
  const MeshShape shape = mesh_of_32();
  run(shape, [&](Mesh& mesh) {
    for (const Group& group : groups) {
      const std::vector<int> ranks = shape.ranks_of(group, mesh.rank());
      if (ranks.empty()) {
        EXPECT_THROW((void)mesh.comm(group), Error) << name_of(group);
        continue;
      }
      Comm& comm = mesh.comm(group);
      EXPECT_EQ(&comm, &mesh.comm(group));
      ASSERT_EQ(comm.size(), static_cast<int>(ranks.size())) << name_of(group);
      EXPECT_EQ(ranks[static_cast<std::size_t>(comm.rank())], mesh.rank()) << name_of(group);

      Buffer own(DType::int32, 1), all(DType::int32, comm.size()), expected = all;
      own.set(0, mesh.rank());
      for (std::size_t i = 0; i < ranks.size(); ++i) expected.set(static_cast<std::int64_t>(i), ranks[i]);
      comm.all_gather(all.tensor(), own.tensor()).wait();
      expect_same(all, expected, name_of(group));
    }
  });
}

void large_buffers(const RunRanks& run) {
  constexpr std::int64_t count = (64 << 20) / sizeof(float);
  run(line(2), [&](Mesh& mesh) {
    Comm& comm = mesh.comm(line_group);
    std::vector<float> x(count);
    const Tensor x_tensor = {x.data(), DType::float32, {count}};
    const auto number_at = [](std::int64_t i, int rank) { return static_cast<float>(i % 1021 + rank); };
    const auto expect_all = [&](const auto& expected, std::string_view what) {
      for (std::int64_t i = 0; i < count; ++i)
        if (x[static_cast<std::size_t>(i)] != expected(i))
          FAIL() << what << ": element " << i << " is " << x[static_cast<std::size_t>(i)];
    };
    for (std::int64_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = number_at(i, comm.rank());

    comm.all_reduce(x_tensor, ReduceOp::sum).wait();
    expect_all([&](std::int64_t i) { return number_at(i, 0) + number_at(i, 1); }, "all_reduce of 64 MiB");

    for (std::int64_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = number_at(i, comm.rank());
    (comm.rank() == 0 ? comm.send(x_tensor, 1) : comm.receive(x_tensor, 0)).wait();
    expect_all([&](std::int64_t i) { return number_at(i, 0); }, "transfer of 64 MiB");

    for (std::int64_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = number_at(i, comm.rank());
    std::vector<float> half(count / 2);
    const Tensor half_tensor = {half.data(), DType::float32, {count / 2}};
    comm.reduce_scatter(half_tensor, x_tensor, ReduceOp::sum).wait();
    comm.all_gather(x_tensor, half_tensor).wait();
    expect_all([&](std::int64_t i) { return number_at(i, 0) + number_at(i, 1); },
               "reduce_scatter and all_gather of 64 MiB");
  });
}

void two_runs_give_the_same_bits(const RunRanks& run) {
  constexpr int n = 7;
  std::vector<std::vector<Buffer>> results;
  for (int i = 0; i < 2; ++i) {
    std::vector<Buffer> result(n, Buffer(DType::float32, several_chunks));
    run(line(n), [&](Mesh& mesh) {
      Buffer x = numbers(DType::float32, several_chunks, mesh.rank());
      mesh.comm(line_group).all_reduce(x.tensor(), ReduceOp::sum).wait();
      result[static_cast<std::size_t>(mesh.rank())] = x;
    });
    results.push_back(std::move(result));
  }
  for (std::size_t rank = 0; rank < n; ++rank)
    expect_same(results[1][rank], results[0][rank], fmt::format("rank {} in a second run", rank));
}

namespace {

// One of each operation, in a group that this rank is in.
void communicate(Mesh& mesh, const Group& group, DType dtype, std::int64_t count) {
  Comm& comm = mesh.comm(group);
  const int n = comm.size(), next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
  Buffer x(dtype, count), y(dtype, count), full(dtype, count * n), other(dtype, count * n);
  comm.all_reduce(x.tensor(), ReduceOp::sum).wait();
  comm.all_gather(full.tensor(), x.tensor()).wait();
  comm.reduce_scatter(x.tensor(), full.tensor(), ReduceOp::max).wait();
  comm.broadcast(x.tensor(), n / 2).wait();
  comm.all_to_all(other.tensor(), full.tensor()).wait();
  comm.barrier().wait();
  if (n == 1) return;
  Pending sent = comm.send(x.tensor(), next);
  comm.receive(y.tensor(), previous).wait();
  sent.wait();
}

}  // namespace

void bytes_sent_are_the_closed_forms(const RunRanks& run) {
  const auto program = [](Mesh& mesh) {
    for (const DType dtype : all_dtypes)
      for (const std::int64_t count : {0, 1, 3, 64, 1001, 16411, 50001})
        for (const Group& group : {Group{{Axis::tp}}, Group{data_axes}, Group{{Axis::cp}},
                                   Group{{Axis::pp}, Group::Part::ends}, Group{{Axis::pp, Axis::tp}}}) {
          if (count > 2000 && (dtype != DType::bfloat16 || group.axes == AxisSet{Axis::pp, Axis::tp})) continue;
          if (mesh.shape().group_size(group, mesh.rank()) > 0) communicate(mesh, group, dtype, count);
        }
  };
  run(mesh_of_32(), [&](Mesh& mesh) {
    program(mesh);
    TraceMesh trace(mesh.shape(), mesh.rank());
    program(trace);
    EXPECT_EQ(mesh.sent_bytes(), trace.sent_bytes()) << "rank " << mesh.rank();
  });
}

void wrong_arguments_are_refused(const RunRanks& run) {
  run(line(3), [](Mesh& mesh) {
    Comm& comm = mesh.comm(line_group);
    Buffer x(DType::float32, 4), y(DType::float32, 4), other(DType::float64, 12), full(DType::float32, 12);
    EXPECT_THROW((void)comm.all_gather(y.tensor(), x.tensor()), Error);
    EXPECT_THROW((void)comm.all_gather(other.tensor(), x.tensor()), Error);
    EXPECT_THROW((void)comm.reduce_scatter(y.tensor(), x.tensor(), ReduceOp::sum), Error);
    EXPECT_THROW((void)comm.broadcast(x.tensor(), 3), Error);
    EXPECT_THROW((void)comm.broadcast(x.tensor(), -1), Error);
    EXPECT_THROW((void)comm.all_to_all(y.tensor(), x.tensor()), Error);
    EXPECT_THROW((void)comm.all_to_all(full.tensor(), other.tensor()), Error);
    EXPECT_THROW((void)comm.send(x.tensor(), comm.rank()), Error);
    EXPECT_THROW((void)comm.receive(x.tensor(), 3), Error);
    EXPECT_THROW((void)mesh.comm({{Axis::dp_replicate}, Group::Part::block, 2}), Error)
        << "blocks of 2 do not divide 3 ranks";
    comm.all_reduce(x.tensor(), ReduceOp::sum).wait();  // what was refused has left no trace
  });
}

}  // namespace echelon::conformance
