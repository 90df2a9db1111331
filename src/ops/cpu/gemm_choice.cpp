#include "ops/cpu/gemm_choice.h"

#include "base/clock.h"
#include "base/error.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/huge_buffer.h"
#include "ops/cpu/instruction_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

namespace echelon {
namespace {

/// true for `yes`, false for `no`, nothing if the variable is not set.
std::optional<bool> asked_by(const char* variable, std::string_view yes, std::string_view no) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  require(value == yes || value == no, "{} = '{}' is unknown; it may be '{}' or '{}'", variable, value, yes, no);
  return value == yes;
}

/// Multiplications per second of tiles whose panels are in the first cache: the most of some tries.
double rate_of(const GemmKernels& kernels) {
  constexpr std::int64_t depth = 128, repeats = 64;
  const std::int64_t a_size = kernels.row_stride * kernels.tile_rows, b_size = depth * kernels.tile_columns,
                     c_size = std::int64_t{kernels.tile_rows} * kernels.tile_columns;
  float* a = HugeBuffer::of_this_thread(HugeBuffer::own).floats(a_size + b_size + c_size);
  std::fill(a, a + a_size + b_size + c_size, 0.0F);
  float *b = a + a_size, *c = b + b_size;
  double best = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double start = thread_seconds();
    for (int repeat = 0; repeat < repeats; ++repeat)
      kernels.multiply({.a = a,
                        .b = b,
                        .c = c,
                        .depth = depth,
                        .ldc = kernels.tile_columns,
                        .rows = kernels.tile_rows,
                        .adds = false,
                        .is_by_k = false,
                        .soon = {}});
    best = std::min(best, thread_seconds() - start);
  }
  return static_cast<double>(depth * repeats * c_size * kernels.per_unit) / best;
}

/// How many times float32's multiplications bfloat16's dot products do; measured once per process.
double advantage_of(const GemmKernels& native) {
  static const double advantage = rate_of(native) / rate_of(widening_kernels(DType::bfloat16));
  return advantage;
}

}  // namespace

const GemmKernels* chosen_float32_kernels() {
  static const auto asks_for_own = asked_by("ECHELON_FLOAT32_PRODUCTS", "own", "openblas");
  const bool is_own = asks_for_own.value_or(is_amd_before_zen5() || Blas::loaded().grains<float>().rows == 0);
  return is_own ? &float32_kernels() : nullptr;
}

const GemmKernels& chosen_bfloat16_kernels() {
  static const auto asks_for_native = asked_by("ECHELON_BFLOAT16_PRODUCTS", "native", "widened");
  const GemmKernels* native = bfloat16_kernels();
  require(native != nullptr || !asks_for_native.value_or(false),
          "ECHELON_BFLOAT16_PRODUCTS = 'native', but this processor has no dot products of bfloat16; use 'widened'");
  if (native == nullptr) return widening_kernels(DType::bfloat16);
  constexpr double least_advantage = 1.25;
  return asks_for_native.has_value()
             ? (*asks_for_native ? *native : widening_kernels(DType::bfloat16))
             : (advantage_of(*native) >= least_advantage ? *native : widening_kernels(DType::bfloat16));
}

std::string describe_gemm_choice() {
  const GemmKernels* native = bfloat16_kernels();
  const std::string bfloat16 =
      native == nullptr
          ? "widened"
          : fmt::format("{} (dot products of pairs do {:.2f} x float32's multiply-adds)",
                        &chosen_bfloat16_kernels() == native ? "native" : "widened", advantage_of(*native));
  return fmt::format("float32 matmuls {}; bfloat16 matmuls {}",
                     chosen_float32_kernels() == nullptr ? "by OpenBLAS" : "own", bfloat16);
}

}  // namespace echelon
