// What it is worth to do in one pass what could be done in several: both ways of each fusion, in turns, by the thread's
// own time.
//
//     bench_fusions [rounds]
#include "base/clock.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/numbers.h"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace echelon {
namespace {

constexpr DType f32 = DType::float32;

double seconds_of(const std::function<void()>& f) {
  const double before = thread_seconds();
  f();
  return thread_seconds() - before;
}

void compare(const std::string& what, int rounds, const std::function<void()>& apart,
             const std::function<void()>& fused) {
  double best_apart = 0, best_fused = 0;
  for (int round = 0; round < rounds; ++round) {
    const double a = seconds_of(apart), b = seconds_of(fused);
    if (round == 0 || a < best_apart) best_apart = a;
    if (round == 0 || b < best_fused) best_fused = b;
  }
  fmt::print("{:<45} {:>8.2f} ms {:>8.2f} ms {:>6.2f}x\n", what, 1e3 * best_apart, 1e3 * best_fused,
             best_apart / best_fused);
}

void measure_norms(std::int64_t N, std::int64_t D, int rounds) {
  CpuOps ops({});
  const Numbers x = Numbers::random(f32, {N, D}, 1), residual = Numbers::random(f32, {N, D}, 2, 1e-6),
                dy = Numbers::random(f32, {N, D}, 3);
  const Numbers w = Numbers::random(f32, {D}, 4), b = Numbers::random(f32, {D}, 5), y(f32, {N, D}), dx(f32, {N, D}),
                mean(f32, {N}), rstd(f32, {N});
  const Numbers dw(f32, {D}), db(f32, {D});
  compare(
      "residual + layer_norm", rounds,
      [&] {
        ops.add(x, x, residual);
        ops.layer_norm({.x = x, .w = w, .b = b, .y = y, .mean = mean, .rstd = rstd});
      },
      [&] { ops.layer_norm({.x = x, .w = w, .b = b, .y = y, .mean = mean, .rstd = rstd, .residual = residual}); });
  compare(
      "layer_norm gradients + residual", rounds,
      [&] {
        ops.layer_norm_backward_weight({.dy = dy, .x = x, .mean = mean, .rstd = rstd, .dw = dw, .db = db});
        ops.layer_norm_backward_input({.dy = dy, .x = x, .w = w, .mean = mean, .rstd = rstd, .dx = dx});
        ops.add(dx, dx, residual);
      },
      [&] {
        ops.layer_norm_backward({.dy = dy,
                                 .x = x,
                                 .w = w,
                                 .mean = mean,
                                 .rstd = rstd,
                                 .dx = dx,
                                 .dw = dw,
                                 .db = db,
                                 .dresidual = residual});
      });
  compare(
      "residual + rms_norm", rounds,
      [&] {
        ops.add(x, x, residual);
        ops.rms_norm({.x = x, .w = w, .y = y, .rstd = rstd});
      },
      [&] { ops.rms_norm({.x = x, .w = w, .y = y, .rstd = rstd, .residual = residual}); });
  compare(
      "rms_norm gradients + residual", rounds,
      [&] {
        ops.rms_norm_backward_weight({.dy = dy, .x = x, .rstd = rstd, .dw = dw});
        ops.rms_norm_backward_input({.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = dx});
        ops.add(dx, dx, residual);
      },
      [&] {
        ops.rms_norm_backward({.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = dx, .dw = dw, .dresidual = residual});
      });
}

void measure_activations(std::int64_t N, std::int64_t F, int rounds) {
  CpuOps ops({});
  const Numbers x = Numbers::random(f32, {N, F}, 1), up = Numbers::random(f32, {N, F}, 2),
                dy = Numbers::random(f32, {N, F}, 3);
  const Numbers bias = Numbers::random(f32, {F}, 4, 1e-6), dbias(f32, {F}), y(f32, {N, F}), dx(f32, {N, F}),
                dup(f32, {N, F});
  compare(
      "bias + gelu", rounds,
      [&] {
        ops.add_bias(x, bias);
        ops.gelu({.x = x, .y = y});
      },
      [&] { ops.gelu({.x = x, .y = y, .bias = bias}); });
  compare(
      "gelu gradient + bias gradient", rounds,
      [&] {
        ops.gelu_backward({.dy = dy, .x = x, .dx = dx});
        ops.bias_backward(dx, dbias);
      },
      [&] { ops.gelu_backward({.dy = dy, .x = x, .dx = dx, .bias = bias, .dbias = dbias}); });
  compare(
      "the same and gelu once more", rounds,
      [&] {
        ops.gelu({.x = x, .y = y});
        ops.gelu_backward({.dy = dy, .x = x, .dx = dx});
        ops.bias_backward(dx, dbias);
      },
      [&] { ops.gelu_backward({.dy = dy, .x = x, .dx = dx, .bias = bias, .dbias = dbias, .y = y}); });
  compare(
      "swiglu gradients and swiglu once more", rounds,
      [&] {
        ops.swiglu({.gate = x, .up = up, .y = y});
        ops.swiglu_backward({.dy = dy, .gate = x, .up = up, .dgate = dx, .dup = dup});
      },
      [&] { ops.swiglu_backward({.dy = dy, .gate = x, .up = up, .dgate = dx, .dup = dup, .y = y}); });
}

/// The gradients of so many weights [F, D] from N tokens: zeroed and added to, or overwritten. Together they are larger
/// than the caches.
void measure_weight_gradients(DType dtype, const Sizes& sizes_FD, std::int64_t N, int num_weights) {
  CpuOps ops({});
  const Numbers dy = Numbers::random(dtype, {N, sizes_FD[0]}, 1), x = Numbers::random(dtype, {N, sizes_FD[1]}, 2);
  const std::vector<Numbers> gradients(static_cast<std::size_t>(num_weights), Numbers(f32, sizes_FD));
  const auto products = [&](bool accumulates) {
    for (const Numbers& dw : gradients) {
      if (accumulates) ops.fill(dw, 0.0);
      ops.matmul({.a = dy, .b = x, .c = dw, .transpose_a = true, .accumulates = accumulates});
    }
  };
  compare(
      fmt::format("{} gradients [{}, {}], {}", num_weights, sizes_FD[0], sizes_FD[1], name_of(dtype)), 5,
      [&] { products(true); }, [&] { products(false); });
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  for (const std::int64_t D : {std::int64_t{384}, std::int64_t{768}}) {
    fmt::print("4,096 tokens, width {}, inner width {}                apart       fused\n", D, 4 * D);
    echelon::measure_norms(4096, D, rounds);
    echelon::measure_activations(4096, 4 * D, rounds);
  }
  for (const echelon::DType dtype : {echelon::DType::float32, echelon::DType::bfloat16}) {
    echelon::measure_weight_gradients(dtype, {3072, 768}, 1024, 12);
    echelon::measure_weight_gradients(dtype, {50'304, 768}, 333, 1);
  }
}
