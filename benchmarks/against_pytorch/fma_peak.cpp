// float32 multiply-adds per second of all threads together, times two: the peak that products are measured against. Prints flops per second.
#include <chrono>
#include <cstdio>

#include <omp.h>

namespace {

#if defined(__AVX512F__)
constexpr int width = 64;
#else
constexpr int width = 32;
#endif
using Lanes [[gnu::vector_size(width)]] = float;

constexpr int num_chains = 12;  // enough independent ones to hide a multiply-add's latency, few enough for 16 registers
constexpr long num_rounds = 20'000'000;

float run() {
  Lanes x[num_chains] = {}, a, b;
  for (unsigned i = 0; i < width / sizeof(float); ++i) a[i] = 0.999F, b[i] = 1e-3F;
  for (long round = 0; round < num_rounds; ++round) {
    for (auto& chain : x) chain = chain * a + b;
    asm volatile("" ::: "memory");
  }
  float sum = 0;
  for (auto& chain : x) sum += chain[0];
  return sum;
}

}  // namespace

int main() {
  double best = 0;
  float sum = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel reduction(+ : sum)
    sum += run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double flops = 2.0 * num_rounds * num_chains * (width / sizeof(float)) * omp_get_max_threads() / seconds;
    best = flops > best ? flops : best;
  }
  std::printf("%.6g\n", sum > 0 ? best : 0);
}
