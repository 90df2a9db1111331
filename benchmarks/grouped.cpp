// How far the grouped matmuls of a mixture's experts are from their floor: of each expert the longer of its flops at
// the rate of a large matmul and its bytes at the rate of a stream, both measured in the same turns. The median of the
// turns, wall time. `dense` is the time of one matmul with as many rows, `separate` that of a matmul per expert.
//
//     bench_grouped [turns] [threads] [rows]   # rows: of each expert, 16, 64 or 256; none: all
#include "base/clock.h"
#include "base/median.h"
#include "base/team.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/numbers.h"
#include "tensor/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

namespace echelon {
namespace {

struct Sizes {
  std::int64_t experts, mean_rows, out, in;
  double zipf;  // expert i has rows in proportion to 1 / (i + 1)^zipf; 0: equally many
};

std::vector<std::int64_t> rows_of_experts(const Sizes& sizes) {
  std::vector<double> shares;
  for (std::int64_t i = 0; i < sizes.experts; ++i) shares.push_back(std::pow(static_cast<double>(i + 1), -sizes.zipf));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const std::int64_t all = sizes.experts * sizes.mean_rows;
  std::vector<std::int64_t> rows;
  std::int64_t first = 0;
  double part = 0;
  for (const double share : shares) {
    part += share / sum;
    const std::int64_t end = std::llround(part * static_cast<double>(all));
    rows.push_back(end - first);
    first = end;
  }
  return rows;
}

/// In an arena, whose pages are those of a run.
class InArena {
 public:
  InArena(DType dtype, const echelon::Sizes& sizes)
      : arena_(Tensor(nullptr, dtype, sizes).num_bytes()), tensor_(arena_.tensor(0, dtype, sizes)) {
    std::memset(tensor_.data, 0, static_cast<std::size_t>(tensor_.num_bytes()));
  }
  explicit InArena(const Numbers& x) : InArena(x.tensor().dtype, x.tensor().sizes) {
    std::memcpy(tensor_.data, x.tensor().data, static_cast<std::size_t>(tensor_.num_bytes()));
  }
  [[nodiscard]] Tensor tensor() const { return tensor_; }

 private:
  const Arena arena_;
  const Tensor tensor_;
};

/// Bytes per second that the threads read together, of memory that no cache holds.
class Stream {
 public:
  explicit Stream(int num_threads) : numbers_(DType::float32, {std::int64_t{64} << 20}), num_threads_(num_threads) {}
  double bytes_per_second() {
    const auto* const data = reinterpret_cast<const float*>(numbers_.tensor().data);
    const std::int64_t count = numbers_.tensor().num_elements();
    std::vector<float> sums(static_cast<std::size_t>(num_threads_), 0);
    const double start = now_seconds();
    const auto sum_part = [&](int thread) {
      const std::int64_t begin = count * thread / num_threads_, end = count * (thread + 1) / num_threads_;
      std::array<float, 64> lanes{};
      for (std::int64_t i = begin; i + 64 <= end; i += 64)
        for (std::int64_t lane = 0; lane < 64; ++lane) lanes[static_cast<std::size_t>(lane)] += data[i + lane];
      sums[static_cast<std::size_t>(thread)] = std::accumulate(lanes.begin(), lanes.end(), 0.0F);
    };
    Team::of_this_thread(num_threads_).run(num_threads_, sum_part);
    const double seconds = now_seconds() - start;
    if (std::accumulate(sums.begin(), sums.end(), 0.0F) != 0) return 0;
    return static_cast<double>(count) * sizeof(float) / seconds;
  }

 private:
  InArena numbers_;
  int num_threads_;
};

struct Operation {
  const char* name;
  std::function<void()> run;
  std::int64_t bytes_of_weight;
  std::function<void(std::int64_t e, std::int64_t first, std::int64_t count)> run_of_expert;
};

void measure(const Sizes& sizes, DType dtype, int num_threads, int turns) {
  const std::int64_t rows = sizes.experts * sizes.mean_rows, out = sizes.out, in = sizes.in;
  const std::vector<std::int64_t> counts = rows_of_experts(sizes);
  std::vector<std::int32_t> ends = {0};
  for (const std::int64_t count : counts) ends.push_back(ends.back() + static_cast<std::int32_t>(count));
  CpuOps ops(CpuOptions{.num_threads = num_threads});
  const Numbers offsets = Numbers::tokens(ends), large = Numbers::random(dtype, {2048, in}, 3),
                dense_w = Numbers::random(dtype, {out, in}, 4, 0.02);
  Numbers of_large(dtype, {2048, out});
  const InArena w_memory(Numbers::random(dtype, {sizes.experts, out, in}, 1, 0.02)),
      x_memory(Numbers::random(dtype, {rows, in}, 2)), y_memory(dtype, {rows, out}), dx_memory(dtype, {rows, in}),
      dw_memory(DType::float32, {sizes.experts, out, in});
  const Tensor w = w_memory.tensor(), x = x_memory.tensor(), y = y_memory.tensor(), dx = dx_memory.tensor(),
               dw = dw_memory.tensor();
  const std::int64_t element = size_of(dtype), weight = out * in;
  const auto matrix_of = [&](const Tensor& of, std::int64_t e) { return of.rows(e, 1).reshaped({out, in}); };
  const std::vector<Operation> operations = {
      {"forward", [&] { ops.grouped_matmul({.a = x, .w = w, .offsets = offsets, .c = y, .transpose_w = true}); },
       weight * element,
       [&](std::int64_t e, std::int64_t first, std::int64_t count) {
         ops.matmul({.a = x.rows(first, count), .b = matrix_of(w, e), .c = y.rows(first, count), .transpose_b = true});
       }},
      {"input gradient", [&] { ops.grouped_matmul({.a = y, .w = w, .offsets = offsets, .c = dx}); }, weight * element,
       [&](std::int64_t e, std::int64_t first, std::int64_t count) {
         ops.matmul({.a = y.rows(first, count), .b = matrix_of(w, e), .c = dx.rows(first, count)});
       }},
      {"weight gradient", [&] { ops.grouped_matmul_backward_weight({.dy = y, .x = x, .offsets = offsets, .dw = dw}); },
       2 * weight * 4,
       [&](std::int64_t e, std::int64_t first, std::int64_t count) {
         ops.matmul({.a = y.rows(first, count),
                     .b = x.rows(first, count),
                     .c = matrix_of(dw, e),
                     .transpose_a = true,
                     .accumulates = true});
       }}};
  Stream stream(num_threads);
  std::vector<std::vector<double>> seconds(operations.size()), separate(operations.size());
  std::vector<double> large_seconds, streams;
  for (int turn = 0; turn <= turns; ++turn) {  // the first one is not counted
    const auto timed = [](const auto& run) {
      const double start = now_seconds();
      run();
      return now_seconds() - start;
    };
    const double of_dense = timed([&] { ops.matmul({.a = large, .b = dense_w, .c = of_large, .transpose_b = true}); });
    const double bytes = stream.bytes_per_second();
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const double each = timed(operations[i].run),
                   of_matmuls = timed([&] {
                     for (std::size_t e = 0; e < counts.size(); ++e)
                       if (counts[e] > 0) operations[i].run_of_expert(static_cast<std::int64_t>(e), ends[e], counts[e]);
                   });
      if (turn == 0) continue;
      seconds[i].push_back(each);
      separate[i].push_back(of_matmuls);
    }
    if (turn == 0) continue;
    large_seconds.push_back(of_dense);
    streams.push_back(bytes);
  }
  const double rate = 2.0 * 2048 * static_cast<double>(weight) / median(large_seconds), stream_rate = median(streams);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    double floor = 0;
    for (const std::int64_t count : counts) {
      if (count == 0) continue;
      const double flops = 2.0 * static_cast<double>(count * weight);
      const auto bytes = static_cast<double>(operations[i].bytes_of_weight + count * (out + in) * element);
      floor += std::max(flops / rate, bytes / stream_rate);
    }
    const double time = median(seconds[i]), dense = 2.0 * static_cast<double>(rows * weight) / rate;
    fmt::print("| {} | {} | {} | {} | {} x {} | {} | {:.3f} | {:.2f} | {:.2f} | {:.2f} |\n", name_of(dtype),
               operations[i].name, sizes.experts, sizes.mean_rows, out, in,
               sizes.zipf > 0 ? fmt::format("zipf {}", sizes.zipf) : "even", 1e3 * time, floor / time, dense / time,
               median(separate[i]) / time);
  }
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  const int turns = argc > 1 ? std::atoi(argv[1]) : 7, num_threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const std::int64_t only = argc > 3 ? std::atoll(argv[3]) : 0;
  fmt::print(
      "{} turns, {} threads\n| dtype | operation | experts | rows each | out x in | loads | ms | floor / time | "
      "dense / time | separate / time |\n|---|---|---|---|---|---|---|---|---|---|\n",
      turns, num_threads);
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const auto& [out, in] : {std::pair<std::int64_t, std::int64_t>{512, 512}, {2048, 512}, {1024, 1024}})
      for (const std::int64_t experts : {8, 64}) {
        for (const double zipf : {0.0, 1.2})
          for (const std::int64_t rows : {16, 64, 256})
            if ((rows == only || only == 0) && (rows > 16 || zipf == 0))
              measure({experts, rows, out, in, zipf}, dtype, num_threads, turns);
      }
}
