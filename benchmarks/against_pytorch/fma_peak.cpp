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
  volatile float factor = 0.999F, summand = 1e-3F;  // no constants, or the compiler would solve a chain that stands still
  Lanes x[num_chains], a, b;
  for (int chain = 0; chain < num_chains; ++chain) x[chain] = Lanes{} + static_cast<float>(chain);  // equal ones would be computed once
  for (unsigned i = 0; i < width / sizeof(float); ++i) a[i] = factor, b[i] = summand;
  for (long round = 0; round < num_rounds; ++round)
    for (auto& chain : x) chain = chain * a + b;
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
