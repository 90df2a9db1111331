// Who multiplies fastest: OpenBLAS by its kernels for AVX2 and for AVX-512, our own kernels, and oneDNN if it was
// found, on the products of training steps. One thread, in turns, by the thread's processor time, the least of some
// tries, as a share of the multiply-adds that the processor can do in float32; and our own kernels by a thread on each
// core, by the clock on the wall. The last rows say to what the processor lowered its frequency meanwhile, and the
// share of the multiply-adds that it can do at that frequency.
//   usage: bench_gemm [gpt2 | small | llama] [tries]
#include "ops/cpu/gemm.h"
#include "base/clock.h"
#include "base/team.h"
#include "frequency.h"
#include "library.h"
#include "machine/cpus.h"
#include "ops/cpu/instruction_set.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace echelon::bench {
namespace {

struct Row {
  int times = 0;  // per step
  Shape shape;
};

/// The three products of a linear layer of `tokens` tokens.
void add_linear(std::vector<Row>& rows, int times, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  rows.push_back({times, {'F', tokens, out, in}});
  rows.push_back({times, {'D', tokens, in, out}});
  rows.push_back({times, {'W', out, in, tokens}});
}

/// The models of benchmarks/against_pytorch, attention without: GPT-2 124M with B = 1, T = 1,024; 6 layers of 384, V =
/// 8,192, with B = 16, T = 256; a Llama of 100 million with B = 1, T = 2,048. Query, key and value are one product
/// here, as in PyTorch's GPT-2; steps of ours have three.
std::vector<Row> rows_of(const std::string& model) {
  std::vector<Row> rows;
  const auto add = [&](int layers, std::int64_t tokens, std::int64_t D, std::int64_t F, std::int64_t qkv,
                       std::int64_t up) {
    add_linear(rows, layers, tokens, qkv, D);
    add_linear(rows, layers, tokens, D, D);
    add_linear(rows, layers, tokens, up, D);
    add_linear(rows, layers, tokens, D, F);
  };
  if (model == "gpt2") {
    add(12, 1024, 768, 3072, 2304, 3072);
    add_linear(rows, 2, 512, 50257, 768);
  } else if (model == "small") {
    add(6, 4096, 384, 1536, 1152, 1536);
    add_linear(rows, 8, 512, 8192, 384);
  } else {
    add(12, 2048, 768, 2048, 1280, 4096);
    add_linear(rows, 4, 512, 32000, 768);
  }
  return rows;
}

/// Numbers in [-1, 1) in huge pages, as a step's buffers are.
class Matrix {
 public:
  Matrix(DType dtype, std::int64_t count)
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(page, (static_cast<std::size_t>(count * size_of(dtype)) / page + 1) * page))) {
    madvise(memory_, static_cast<std::size_t>(count * size_of(dtype)), MADV_HUGEPAGE);
    for (std::int64_t i = 0; i < count; ++i) {
      const float number = static_cast<float>(static_cast<std::uint32_t>(i) * 2654435761U >> 8) * 0x1p-23F - 1;
      if (dtype == DType::float32) reinterpret_cast<float*>(memory_)[i] = number;
      if (dtype == DType::bfloat16) reinterpret_cast<bfloat16*>(memory_)[i] = bfloat16(number);
    }
  }
  ~Matrix() { std::free(memory_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  [[nodiscard]] std::byte* data() const { return memory_; }

 private:
  static constexpr std::size_t page = 2 << 20;
  std::byte* memory_;
};

struct Column {
  std::string name;
  Product product;
  int num_threads = 1;
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<double> frequencies = {};  // right after each try, in multiplications of a chain per second
};

Product own(const GemmKernels* kernels, const Shape& s, const Operands& x, int num_threads = 1) {
  if (kernels == nullptr) return std::nullopt;
  const GemmProduct product{.a = {static_cast<std::byte*>(x.a), s.transposes_a() ? s.m : s.k, s.transposes_a()},
                            .b = {static_cast<std::byte*>(x.b), s.transposes_b() ? s.k : s.n, s.transposes_b()},
                            .c = static_cast<std::byte*>(x.c),
                            .c_stride = s.n,
                            .c_dtype = s.accumulates() ? DType::float32 : kernels->dtype,
                            .m = s.m,
                            .n = s.n,
                            .k = s.k,
                            .accumulates = s.accumulates()};
  return [=] { multiply(*kernels, product, num_threads); };
}

/// As the operation before a matmul does in a step.
void wake_team(int num_threads) {
  std::atomic<int> num_awake = 0;
  const auto await_all = [&](int) {
    for (++num_awake; num_awake < num_threads;) {
    }
  };
  Team::of_this_thread(num_threads).run(num_threads, await_all);
}

std::vector<Column> measure(const Shape& s, int tries) {
  const bool has_avx512 = largest_of_processor() >= InstructionSet::avx512;
  const Matrix a(DType::float32, s.m * s.k), b(DType::float32, s.k * s.n), c(DType::float32, s.m * s.n);
  const Matrix a16(DType::bfloat16, s.m * s.k), b16(DType::bfloat16, s.k * s.n);
  const Operands x{a.data(), b.data(), c.data()}, x16{a16.data(), b16.data(), c.data()};
  std::vector<Column> columns = {{"OpenBLAS AVX2", openblas_product("Haswell", s, x)},
                                 {"AVX-512", has_avx512 ? openblas_product("SkylakeX", s, x) : std::nullopt},
                                 {"oneDNN", onednn_product(s, DType::float32, x)},
                                 {"own", own(&float32_kernels(), s, x)},
                                 {"bf16 oneDNN", onednn_product(s, DType::bfloat16, x16)},
                                 {"own widened", own(&widening_kernels(DType::bfloat16), s, x16)},
                                 {"own native", own(bfloat16_kernels(), s, x16)},
                                 {"own AMX", own(amx_kernels(), s, x16)}};
  const std::string on_all = fmt::format(" on {} threads", num_usable_cores());
  columns.push_back({"own" + on_all, own(&float32_kernels(), s, x, num_usable_cores()), num_usable_cores()});
  columns.push_back({"own native" + on_all, own(bfloat16_kernels(), s, x16, num_usable_cores()), num_usable_cores()});
  columns.push_back({"own AMX" + on_all, own(amx_kernels(), s, x16, num_usable_cores()), num_usable_cores()});
  for (int attempt = 0; attempt < tries; ++attempt)
    for (Column& column : columns) {
      if (!column.product) continue;
      const auto now = [&] { return column.num_threads > 1 ? now_seconds() : thread_seconds(); };
      wake_team(column.num_threads);
      const double start = now();
      (*column.product)();
      column.seconds = std::min(column.seconds, now() - start);
      column.frequencies.push_back(chained_multiplications_per_second());
    }
  return columns;
}

void print(const std::string& title, const std::vector<Column>& columns, double flops, double peak) {
  std::string line = title;
  for (const Column& column : columns)
    line +=
        column.product ? fmt::format(" | {:.1f}", 100 * flops / column.seconds / (peak * column.num_threads)) : " | -";
  fmt::print("{} |\n", line);
  std::fflush(stdout);
}

/// Rows below the totals. Of the frequencies the lower quartile, since after some tries a core was faster already.
void print_frequencies(std::vector<Column> totals, double flops, const Peak& peak) {
  std::string line = "| frequency, % | | |";
  for (Column& total : totals) {
    if (!total.product) {
      line += " | -";
      continue;
    }
    std::ranges::sort(total.frequencies);
    const double share = total.frequencies.at(total.frequencies.size() / 4) / peak.frequency;
    line += fmt::format(" | {:.1f}", 100 * share);
    total.seconds *= share;
  }
  fmt::print("{} |\n", line);
  print("| all, at that frequency | | |", totals, flops, peak.flops);
}

void run(const std::string& model, int tries, const Peak& peak) {
  std::vector<Column> totals;
  double total_flops = 0;
  for (const auto& [times, shape] : rows_of(model)) {
    const bool is_large = shape.flops() > 1e10;
    const auto columns = measure(shape, is_large ? std::max(2, tries / 2) : tries);
    if (totals.empty()) {
      totals = columns;
      std::string names = "| times | m | n | k";
      for (Column& total : totals) {
        names += " | " + total.name;
        total.seconds = 0;
        total.frequencies.clear();
      }
      fmt::print("\n{}, % of {:.1f} GFLOP/s\n{} |\n", model, peak.flops / 1e9, names);
    }
    print(fmt::format("| {:2} {} | {} | {} | {}", times, shape.kind, shape.m, shape.n, shape.k), columns, shape.flops(),
          peak.flops);
    total_flops += times * shape.flops();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      totals[i].seconds += times * columns[i].seconds;
      totals[i].frequencies.insert(totals[i].frequencies.end(), columns[i].frequencies.begin(),
                                   columns[i].frequencies.end());
    }
  }
  print("| all | | |", totals, total_flops, peak.flops);
  print_frequencies(totals, total_flops, peak);
}

void run_all(const std::vector<std::string>& arguments) {
  const int tries = arguments.empty() || arguments.back().find_first_not_of("0123456789") != std::string::npos
                        ? 6
                        : std::stoi(arguments.back());
  static_cast<void>(largest_instruction_set());  // which may be capped
  const Peak peak = measure_peak();
  for (const std::string model : {"gpt2", "small", "llama"})
    if (arguments.empty() || arguments.front() == model ||
        arguments.front().find_first_not_of("0123456789") == std::string::npos)
      run(model, tries, peak);
}

}  // namespace
}  // namespace echelon::bench

int main(int argc, char** argv) { echelon::bench::run_all({argv + 1, argv + argc}); }
