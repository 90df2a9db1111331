// Counts of experts, by a warp for an expert of a sequence; the losses of a router, by a warp for a token; and the
// bias. Losses are added in two stages and in one order: each block leaves its sums, and one block adds these.
#include "cuda/device/lanes.h"
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

#include <algorithm>

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / warp_size;
constexpr std::int64_t max_blocks = 512;
constexpr int num_losses = static_cast<int>(num_router_losses);

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x) / warp_size; }

struct CountedTokens {
  const std::int32_t* experts;
  std::int64_t N, first_token, tokens_per_sequence;
  int k, E;
};

/// A warp has an element of counts alone, so that nothing is added at the same time.
__global__ void __launch_bounds__(block_threads)
    count_kernel(CountedTokens of, double* counts, std::int64_t num_counts) {
  const std::int64_t i = std::int64_t{blockIdx.x} * block_warps + warp_of_block();
  if (i >= num_counts) return;
  const std::int64_t sequence = i / of.E, expert = i % of.E, begin = sequence * of.tokens_per_sequence - of.first_token,
                     first = begin > 0 ? begin : 0,
                     end = begin + of.tokens_per_sequence < of.N ? begin + of.tokens_per_sequence : of.N;
  double count = 0;
  for (std::int64_t row = first * of.k + lane_of_thread(); row < end * of.k; row += warp_size)
    if (of.experts[row] == expert) count += 1;
  count = warp_sum(count);
  if (lane_of_thread() == 0) counts[i] += count;
}

template <class W>
__global__ void __launch_bounds__(block_threads)
    count_nan_kernel(const W* __restrict__ weights, std::int64_t N, int k, double* num_nan) {
  double count = 0;
  for (std::int64_t n = threadIdx.x; n < N; n += block_threads)
    if (weights[n * k] != weights[n * k]) count += 1;
  __shared__ double scratch[block_warps];
  count = block_sum(count, scratch);
  if (threadIdx.x == 0) *num_nan += count;
}

__global__ void __launch_bounds__(block_threads)
    count_dropped_kernel(CountedTokens of, const std::int32_t* __restrict__ slots, double* num_dropped) {
  double count = 0;
  for (std::int64_t row = threadIdx.x; row < of.N * of.k; row += block_threads)
    if (of.experts[row] >= 0 && of.experts[row] < of.E && slots[row] < 0) count += 1;
  __shared__ double scratch[block_warps];
  count = block_sum(count, scratch);
  if (threadIdx.x == 0) *num_dropped += count;
}

/// What the losses of tokens are computed from; null where a loss has none.
template <class W>
struct LossInputs {
  const W* logits;
  const std::int32_t* experts;
  const double *num_targets, *loss_scale, *counts, *loads;
  W* gradient;
  CountedTokens tokens;
  RouterLosses rule;
  bool is_softmax;

  /// Of E mean(p_e): the factor of a count of the sequence, and of f in the step before.
  [[nodiscard]] __device__ __forceinline__ double of_all() const { return tokens.E / rule.num_tokens; }
  [[nodiscard]] __device__ __forceinline__ W of_sequence(std::int64_t sequence, int e) const {
    if (rule.sequence == 0) return 0;
    return static_cast<W>(rule.sequence * of_all() * counts[sequence * tokens.E + e] /
                          (tokens.k * rule.tokens_per_sequence));
  }
  [[nodiscard]] __device__ __forceinline__ W of_step(int e, double sum_of_loads) const {
    if (rule.global == 0) return 0;
    return static_cast<W>(rule.global * of_all() * (sum_of_loads > 0 ? loads[e] / sum_of_loads : 1.0 / tokens.E));
  }
};

/// Adds the losses of token n, and writes their gradient.
template <class W>
__device__ __forceinline__ void add_token(const LossInputs<W>& of, std::int64_t n, double sum_of_loads, W seed,
                                          double (&losses)[num_losses]) {
  const int E = of.tokens.E, lane = lane_of_thread();
  W* gradient = of.gradient + n * E;
  if (of.experts[n * of.tokens.k] < 0) {
    for (int e = lane; e < E; e += warp_size) gradient[e] = 0;
    return;
  }
  const std::int64_t s = (of.tokens.first_token + n) / of.tokens.tokens_per_sequence;
  const W* z = of.logits + n * E;
  W max = W(-INFINITY), sum = 0, all = 0, nan = 0;
  for (int e = lane; e < E; e += warp_size) {
    max = z[e] > max ? z[e] : max;
    if (z[e] != z[e]) nan = z[e];
  }
  max = warp_max(max) + warp_sum(nan);
  for (int e = lane; e < E; e += warp_size) sum += exp(z[e] - max);
  sum = warp_sum(sum);
  for (int e = lane; !of.is_softmax && e < E; e += warp_size) all += 1 / (1 + exp(-z[e]));
  all = of.is_softmax ? sum : warp_sum(all);
  const auto p = [&](int e) { return (of.is_softmax ? exp(z[e] - max) : 1 / (1 + exp(-z[e]))) / all; };
  W sequence = 0, global = 0;
  for (int e = lane; e < E; e += warp_size) {
    sequence += of.of_sequence(s, e) * p(e);
    global += of.of_step(e, sum_of_loads) * p(e);
  }
  sequence = warp_sum(sequence);
  global = warp_sum(global);
  const W lse = max + log(sum), of_z = static_cast<W>(of.rule.z / of.rule.num_tokens), mean = sequence + global;
  for (int e = lane; e < E; e += warp_size) {
    const W of_score = of.is_softmax ? W(1) : 1 - 1 / (1 + exp(-z[e]));
    gradient[e] = seed * (p(e) * of_score * (of.of_sequence(s, e) + of.of_step(e, sum_of_loads) - mean) +
                          2 * of_z * lse * exp(z[e] - max) / sum);
  }
  losses[0] += static_cast<double>(sequence);
  losses[1] += static_cast<double>(global);
  losses[2] += static_cast<double>(of_z * lse * lse);
}

template <class W>
__global__ void __launch_bounds__(block_threads) losses_kernel(LossInputs<W> of, double* sums) {
  double sum_of_loads = 0, losses[num_losses] = {};
  for (int e = 0; of.rule.global != 0 && e < of.tokens.E; ++e) sum_of_loads += of.loads[e];
  const double scale = of.loss_scale == nullptr ? 1 : *of.loss_scale;
  const W seed = static_cast<W>(*of.num_targets / of.rule.expected_targets * scale);
  for (std::int64_t n = std::int64_t{blockIdx.x} * block_warps + warp_of_block(); n < of.tokens.N;
       n += std::int64_t{gridDim.x} * block_warps)
    add_token(of, n, sum_of_loads, seed, losses);
  // Every lane of a warp has its sums.
  __shared__ double scratch[block_warps][num_losses];
  if (lane_of_thread() == 0)
    for (int i = 0; i < num_losses; ++i) scratch[warp_of_block()][i] = losses[i];
  __syncthreads();
  if (threadIdx.x >= num_losses) return;
  double sum = 0;
  for (int warp = 0; warp < block_warps; ++warp) sum += scratch[warp][threadIdx.x];
  sums[blockIdx.x * num_losses + threadIdx.x] = sum;
}

__global__ void add_losses_kernel(const double* sums, int num_blocks, const double* num_targets, double* losses) {
  if (threadIdx.x >= num_losses || *num_targets == 0) return;
  double sum = 0;
  for (int block = 0; block < num_blocks; ++block) sum += sums[block * num_losses + threadIdx.x];
  losses[threadIdx.x] += sum;
}

struct Balanced {
  const double *counts, *factor;
  double* loads;  // or null
  float* bias;    // or null
  std::int64_t num_columns;
  int E;
  double rate;
};

/// A block for a layer.
__global__ void __launch_bounds__(block_threads) balance_kernel(Balanced of) {
  if (*of.factor != *of.factor) return;
  const std::int64_t m = blockIdx.x;
  const double* counts = of.counts + m * of.num_columns;
  double sum = 0;
  for (int e = 0; e < of.E; ++e) sum += counts[e];
  for (int e = static_cast<int>(threadIdx.x); e < of.E; e += block_threads) {
    const double above = of.E * counts[e], sign = above < sum ? 1 : above > sum ? -1 : 0;
    if (of.bias != nullptr) of.bias[m * of.E + e] += static_cast<float>(of.rate * sign);
    if (of.loads != nullptr) of.loads[m * of.E + e] = counts[e];
  }
}

[[nodiscard]] const double* scalars(const Tensor& x) { return x.exists() ? numbers<double>(x) : nullptr; }

}  // namespace

void CudaOps::compute(const CountExpertsArgs& args) {
  const CountedTokens tokens = {numbers<std::int32_t>(args.experts),
                                args.experts.size(0),
                                args.first_token,
                                args.tokens_per_sequence,
                                static_cast<int>(args.experts.size(1)),
                                static_cast<int>(args.counts.size(1))};
  const std::int64_t num_counts = args.counts.num_elements();
  launch({.num_blocks = blocks_for(num_counts, block_warps), .num_threads = block_threads, .stream = stream()},
         count_kernel, tokens, numbers<double>(args.counts), num_counts);
  if (args.num_dropped.exists())
    launch({.num_threads = block_threads, .stream = stream()}, count_dropped_kernel, tokens,
           numbers<std::int32_t>(args.slots), numbers<double>(args.num_dropped));
  if (!args.num_nan.exists()) return;
  const auto of_type = [&]<class W>(W) {
    launch({.num_threads = block_threads, .stream = stream()}, count_nan_kernel<W>, numbers<W>(args.weights), tokens.N,
           tokens.k, numbers<double>(args.num_nan));
  };
  args.weights.dtype == DType::float64 ? of_type(double{}) : of_type(float{});
}

void CudaOps::compute(const RouterLossesArgs& args) {
  const std::int64_t N = args.logits.size(0), num_blocks = std::min(max_blocks, blocks_for(N, block_warps));
  double* const sums = workspace_.as<double>(num_blocks * num_losses);
  const auto of_type = [&]<class W>(W) {
    const LossInputs<W> of = {numbers<W>(args.logits),
                              numbers<std::int32_t>(args.experts),
                              scalars(args.num_targets),
                              scalars(args.loss_scale),
                              scalars(args.counts),
                              scalars(args.loads),
                              numbers<W>(args.gradient),
                              {numbers<std::int32_t>(args.experts), N, args.first_token, args.tokens_per_sequence,
                               static_cast<int>(args.experts.size(1)), static_cast<int>(args.logits.size(1))},
                              args.rule,
                              args.scores == ExpertScores::softmax};
    launch({.num_blocks = num_blocks, .num_threads = block_threads, .stream = stream()}, losses_kernel<W>, of, sums);
  };
  args.logits.dtype == DType::float64 ? of_type(double{}) : of_type(float{});
  launch({.num_blocks = num_blocks > 0 ? 1 : 0, .num_threads = warp_size, .stream = stream()}, add_losses_kernel, sums,
         static_cast<int>(num_blocks), scalars(args.num_targets), numbers<double>(args.losses));
}

void CudaOps::compute(const BalanceExpertsArgs& args) {
  const Tensor& sized = args.bias.exists() ? args.bias : args.loads;
  if (!sized.exists()) return;
  const Balanced of = {scalars(args.counts),
                       scalars(args.factor),
                       args.loads.exists() ? numbers<double>(args.loads) : nullptr,
                       args.bias.exists() ? numbers<float>(args.bias) : nullptr,
                       args.counts.size(1),
                       static_cast<int>(sized.size(1)),
                       args.rate};
  launch({.num_blocks = args.counts.size(0), .num_threads = block_threads, .stream = stream()}, balance_kernel, of);
}

}  // namespace echelon::cuda
