// Collectives and transfers against naive loops, for every dtype, groups of 1 to 9 ranks, sizes that divide and that do
// not, in place and not.
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "spec/mesh_shape.h"

#include <fmt/format.h>

#include <atomic>

namespace echelon::conformance {
namespace {

// Elements of the full buffer, or of a shard: nothing, one, odd, one chunk and a bit, several chunks.
constexpr std::int64_t counts[] = {0, 1, 7, 1000, 16411, 50001};

struct Case {
  Mesh& mesh;
  Comm& comm;
  DType dtype;
  std::int64_t count;
  [[nodiscard]] int n() const { return comm.size(); }
  [[nodiscard]] int rank() const { return comm.rank(); }
  [[nodiscard]] std::string name(std::string_view operation) const {
    return fmt::format("{} of {} {} on rank {} of {}", operation, count, name_of(dtype), rank(), n());
  }
};

void for_each_case(const RunRanks& run, const std::function<void(const Case&)>& body) {
  for (int n = 1; n <= 9; ++n)
    run(line(n), [&](Mesh& mesh) {
      Comm& comm = mesh.comm(line_group);
      ASSERT_EQ(comm.size(), n);
      for (const DType dtype : all_dtypes)
        for (const std::int64_t count : counts)
          if (count < 10000 || n % 4 == 1 || dtype == DType::bfloat16) body({mesh, comm, dtype, count});
    });
}

void expect_all_reduce(const RunRanks& run, ReduceOp op) {
  for_each_case(run, [&](const Case& c) {
    Buffer x = numbers(c.dtype, c.count, c.rank());
    c.comm.all_reduce(x.tensor(), op).wait();
    expect_same(x, reduced(c.dtype, c.count, c.n(), op), c.name("all_reduce"));
  });
}

// The concatenation of the ranks' numbers.
Buffer gathered(const Case& c, int salt) {
  Buffer full(c.dtype, c.count * c.n());
  for (int rank = 0; rank < c.n(); ++rank)
    for (std::int64_t i = 0; i < c.count; ++i) full.set(rank * c.count + i, number(rank, i, salt));
  return full;
}

}  // namespace

void all_reduce_adds_in_rank_order(const RunRanks& run) { expect_all_reduce(run, ReduceOp::sum); }
void all_reduce_takes_the_maximum(const RunRanks& run) { expect_all_reduce(run, ReduceOp::max); }

void all_gather_concatenates(const RunRanks& run) {
  for_each_case(run, [](const Case& c) {
    Buffer shard = numbers(c.dtype, c.count, c.rank(), 1), full(c.dtype, c.count * c.n());
    c.comm.all_gather(full.tensor(), shard.tensor()).wait();
    expect_same(full, gathered(c, 1), c.name("all_gather"));
    expect_same(shard, numbers(c.dtype, c.count, c.rank(), 1), c.name("the shard of all_gather"));

    Buffer in_place(c.dtype, c.count * c.n());
    for (std::int64_t i = 0; i < c.count; ++i) in_place.set(c.rank() * c.count + i, number(c.rank(), i, 2));
    c.comm.all_gather(in_place.tensor(), in_place.tensor().rows(c.rank() * c.count, c.count)).wait();
    expect_same(in_place, gathered(c, 2), c.name("all_gather in place"));
  });
}

void reduce_scatter_leaves_each_rank_its_part(const RunRanks& run) {
  for_each_case(run, [](const Case& c) {
    const std::int64_t full_count = c.count * c.n(), first = c.rank() * c.count;
    const Buffer own = numbers(c.dtype, full_count, c.rank(), 3);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      const Buffer expected = reduced(c.dtype, c.count, c.n(), op, 3, first);
      Buffer full = own, shard(c.dtype, c.count);
      c.comm.reduce_scatter(shard.tensor(), full.tensor(), op).wait();
      expect_same(shard, expected, c.name("reduce_scatter"));
      expect_same(full, own, c.name("the full tensor of reduce_scatter"));

      c.comm.reduce_scatter(full.tensor().rows(first, c.count), full.tensor(), op).wait();
      Buffer in_place = own;
      for (std::int64_t i = 0; i < c.count; ++i) in_place.set(first + i, expected.get(i));
      expect_same(full, in_place, c.name("reduce_scatter in place"));
    }
  });
}

void broadcast_copies_the_root(const RunRanks& run) {
  for_each_case(run, [](const Case& c) {
    for (int root = 0; root < c.n(); root += 2) {
      Buffer x = numbers(c.dtype, c.count, c.rank(), root);
      c.comm.broadcast(x.tensor(), root).wait();
      expect_same(x, numbers(c.dtype, c.count, root, root), c.name("broadcast"));
    }
  });
}

namespace {

/// Rows of `columns` numbers: from rank i to rank j as many as the case has, and (3 i + 5 j) mod 4 more, but none from
/// some. Between parts there are rows that belong to nobody.
struct Parts {
  std::vector<RowPart> sent, received;
  std::int64_t num_sent = 0, num_received = 0;

  explicit Parts(const Case& c) {
    const auto count = [&](int i, int j) { return (i + 2 * j) % 5 == 4 ? 0 : c.count / 1000 + (3 * i + 5 * j) % 4; };
    for (int other = 0; other < c.n(); ++other) {
      sent.push_back({num_sent + other % 2, count(c.rank(), other)});
      received.push_back({num_received + 1, count(other, c.rank())});
      num_sent = sent.back().first + sent.back().count;
      num_received = received.back().first + received.back().count;
    }
  }
};

}  // namespace

void all_to_all_moves_rows(const RunRanks& run) {
  constexpr std::int64_t columns = 3;
  for_each_case(run, [](const Case& c) {
    const Parts parts(c);
    Buffer sent = numbers(c.dtype, parts.num_sent * columns, c.rank(), 4);
    Buffer received = numbers(c.dtype, parts.num_received * columns, c.rank(), 5), expected = received;
    const auto matrix = [](Buffer& buffer) {
      return buffer.tensor().reshaped({buffer.num_elements() / columns, columns});
    };
    c.comm.all_to_all_rows({matrix(received), matrix(sent), parts.received, parts.sent}).wait();
    for (int rank = 0; rank < c.n(); ++rank) {
      const RowPart& part = parts.received[static_cast<std::size_t>(rank)];
      std::int64_t first = 0;  // of the part, where the other rank has it
      for (int other = 0; other <= c.rank(); ++other) {
        first += other % 2;
        const bool is_none = (rank + 2 * other) % 5 == 4;
        if (other < c.rank()) first += is_none ? 0 : c.count / 1000 + (3 * rank + 5 * other) % 4;
      }
      for (std::int64_t i = 0; i < part.count * columns; ++i)
        expected.set(part.first * columns + i, number(rank, first * columns + i, 4));
    }
    expect_same(received, expected, c.name("all_to_all of rows"));
  });
}

void all_to_all_transposes(const RunRanks& run) {
  for_each_case(run, [](const Case& c) {
    Buffer sent = numbers(c.dtype, c.count * c.n(), c.rank(), 4), received(c.dtype, c.count * c.n()),
           expected = received;
    c.comm.all_to_all(received.tensor(), sent.tensor()).wait();
    for (int rank = 0; rank < c.n(); ++rank)
      for (std::int64_t i = 0; i < c.count; ++i)
        expected.set(rank * c.count + i, number(rank, c.rank() * c.count + i, 4));
    expect_same(received, expected, c.name("all_to_all"));
  });
}

void transfers_arrive_in_order(const RunRanks& run) {
  for_each_case(run, [](const Case& c) {
    if (c.n() == 1) return;
    const int next = (c.rank() + 1) % c.n(), previous = (c.rank() + c.n() - 1) % c.n();
    Buffer first = numbers(c.dtype, c.count, c.rank(), 5), second = numbers(c.dtype, 3, c.rank(), 6);
    Buffer got_first(c.dtype, c.count), got_second(c.dtype, 3);
    Pending pending[] = {c.comm.send(first.tensor(), next), c.comm.send(second.tensor(), next),
                         c.comm.receive(got_first.tensor(), previous), c.comm.receive(got_second.tensor(), previous)};
    for (const int i : {3, 1, 0, 2}) pending[i].wait();
    expect_same(got_first, numbers(c.dtype, c.count, previous, 5), c.name("a first transfer"));
    expect_same(got_second, numbers(c.dtype, 3, previous, 6), c.name("a second transfer"));
  });
}

void barrier_waits_for_all(const RunRanks& run) {
  for (int n = 1; n <= 9; n += 4) {
    std::atomic<int> num_started = 0, num_arrived = 0;
    run(line(n), [&](Mesh& mesh) {
      Comm& comm = mesh.comm(line_group);
      Buffer x(DType::float32, 1);
      num_started.fetch_add(1);
      comm.all_reduce(x.tensor(), ReduceOp::sum).wait();
      const bool shares_memory = num_started.load() == n;  // ranks of several processes cannot look at each other
      for (int round = 1; round <= 20; ++round) {
        num_arrived.fetch_add(1);
        comm.barrier().wait();
        if (shares_memory) {
          EXPECT_GE(num_arrived.load(), round * n);
        }
      }
    });
  }
}

}  // namespace echelon::conformance
