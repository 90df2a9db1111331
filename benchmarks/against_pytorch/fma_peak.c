// float32 multiply-adds per second of all threads together, times two: the peak that products are measured against. Prints flops per second.
// compare.py compiles it for the processor at hand.
#include <omp.h>
#include <stdio.h>

#ifdef __AVX512F__
#define WIDTH 64
#else
#define WIDTH 32
#endif
typedef float Lanes __attribute__((vector_size(WIDTH)));

enum { num_chains = 12, num_rounds = 20000000 };  // enough independent chains to hide a multiply-add's latency, few enough for 16 registers

static float run(void) {
  volatile float factor = 0.999F, summand = 1e-3F;  // no constants, or the compiler would solve a chain that stands still
  const Lanes zero = {0}, a = zero + factor, b = zero + summand;
  Lanes x[num_chains];
  for (int chain = 0; chain < num_chains; ++chain) x[chain] = zero + (float)chain;  // equal ones would be computed once
  for (long round = 0; round < num_rounds; ++round)
    for (int chain = 0; chain < num_chains; ++chain) x[chain] = x[chain] * a + b;
  float sum = 0;
  for (int chain = 0; chain < num_chains; ++chain) sum += x[chain][0];
  return sum;
}

int main(void) {
  double best = 0;
  float sum = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double begin = omp_get_wtime();
#pragma omp parallel reduction(+ : sum)
    sum += run();
    const double flops = 2.0 * num_rounds * num_chains * (WIDTH / sizeof(float)) * omp_get_max_threads() / (omp_get_wtime() - begin);
    if (flops > best) best = flops;
  }
  printf("%.6g\n", sum > 0 ? best : 0);
  return 0;
}
