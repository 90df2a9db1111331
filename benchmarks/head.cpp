// How many tokens the head should take at a time: its three products and its vector passes over chunks of several
// sizes, in turns; the medians of wall time, for threads share what memory gives.
//
//     bench_head [rounds] [threads]
#include "base/clock.h"
#include "base/median.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/numbers.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <vector>

namespace echelon {
namespace {

/// Seconds of the parts of one chunk.
struct Parts {
  double logits = 0, exponentials = 0, gradient = 0, dw = 0, dx = 0;
  [[nodiscard]] double sum() const { return logits + exponentials + gradient + dw + dx; }
};

class HeadChunks {
 public:
  HeadChunks(std::int64_t V, std::int64_t D, std::int64_t most_rows, int num_threads)
      : V_(V),
        w_(Numbers::random(DType::float32, {V, D}, 1, 0.02)),
        dw_(DType::float32, {V, D}),
        x_(Numbers::random(DType::float32, {most_rows, D}, 2)),
        dx_(DType::float32, {most_rows, D}),
        logits_(DType::float32, {most_rows, V}),
        rows_(DType::float32, {4, most_rows}),
        targets_(Numbers::tokens(std::vector<std::int32_t>(static_cast<std::size_t>(most_rows), 7))),
        ops_(CpuOptions{.num_threads = num_threads}) {}

  Parts run(std::int64_t rows) {
    const Tensor x = x_.tensor().rows(0, rows), logits = logits_.tensor().rows(0, rows),
                 targets = targets_.tensor().rows(0, rows);
    const auto statistic = [&](std::int64_t which) {
      return Tensor(rows_.tensor().rows(which, 1).flat().rows(0, rows));
    };
    Parts parts;
    double before = now_seconds();
    const auto lap = [&](double& part) {
      const double now = now_seconds();
      part = now - before;
      before = now;
    };
    ops_.matmul({.a = x, .b = w_, .c = logits, .transpose_b = true});
    lap(parts.logits);
    ops_.row_exp({.logits = logits,
                  .targets = targets,
                  .max = statistic(0),
                  .sum = statistic(1),
                  .target_logit = statistic(2),
                  .first_column = 0,
                  .valid_columns = V_});
    ops_.cross_entropy({.max = statistic(0),
                        .sum = statistic(1),
                        .target_logit = statistic(2),
                        .targets = targets,
                        .lse = statistic(3),
                        .loss_sum = loss_sum_});
    lap(parts.exponentials);
    ops_.cross_entropy_backward({.exps = logits,
                                 .max = statistic(0),
                                 .lse = statistic(3),
                                 .targets = targets,
                                 .dlogits = logits,
                                 .first_column = 0,
                                 .valid_columns = V_,
                                 .scale = 1e-3});
    lap(parts.gradient);
    ops_.matmul({.a = logits, .b = x, .c = dw_, .transpose_a = true, .accumulates = true});
    lap(parts.dw);
    ops_.matmul({.a = logits, .b = w_, .c = dx_.tensor().rows(0, rows)});
    lap(parts.dx);
    return parts;
  }

 private:
  std::int64_t V_;
  Numbers w_, dw_, x_, dx_, logits_, rows_, targets_, loss_sum_{DType::float64, {1}};
  CpuOps ops_;
};

/// Microseconds per token.
double median_of(const std::vector<Parts>& all, std::int64_t rows, double (*part)(const Parts&)) {
  std::vector<double> seconds;
  for (const Parts& parts : all) seconds.push_back(part(parts));
  return 1e6 * median(seconds) / static_cast<double>(rows);
}

void measure(std::int64_t V, std::int64_t D, int rounds, int num_threads) {
  const std::vector<std::int64_t> sizes = {32, 64, 128, 256, 512, 1024, 2048};
  HeadChunks head(V, D, sizes.back(), num_threads);
  std::vector<std::vector<Parts>> parts(sizes.size());
  head.run(sizes.back());  // touches the memory
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < sizes.size(); ++i) parts[i].push_back(head.run(sizes[i]));
  fmt::print("V = {}, D = {}, {} threads: microseconds per token\n{:>8} {:>10} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8}\n",
             V, D, num_threads, "tokens", "MB logits", "logits", "row_exp", "gradient", "dw", "dx", "all");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto part = [&](double (*of)(const Parts&)) { return median_of(parts[i], sizes[i], of); };
    fmt::print("{:>8} {:>10.1f} {:>8.2f} {:>8.2f} {:>9.2f} {:>8.2f} {:>8.2f} {:>8.2f}\n", sizes[i],
               static_cast<double>(4 * sizes[i] * V) / 1e6, part([](const Parts& p) { return p.logits; }),
               part([](const Parts& p) { return p.exponentials; }), part([](const Parts& p) { return p.gradient; }),
               part([](const Parts& p) { return p.dw; }), part([](const Parts& p) { return p.dx; }),
               part([](const Parts& p) { return p.sum(); }));
  }
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int num_threads = argc > 2 ? std::atoi(argv[2]) : 2;
  echelon::measure(8192, 384, 4 * rounds, num_threads);
  echelon::measure(32000, 768, rounds, num_threads);
  echelon::measure(50257, 768, rounds, num_threads);
}
