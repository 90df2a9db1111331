// The router of a mixture of experts, by a warp for a token whose lanes look at every 32nd expert; and weighted rows,
// by a warp for a row. The k experts are found one after another: the next is the best of those that come after the
// last one, by value and then by index. So there are no marks, and ties are broken as everywhere.
#include "cuda/device/launch.h"
#include "cuda/device/packs.h"
#include "cuda/ops/cuda_ops.h"
#include "cuda/ops/numbers.h"

namespace echelon::cuda {
namespace {

constexpr int block_threads = 256, block_warps = block_threads / warp_size;

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ __forceinline__ std::int64_t item_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * block_warps + threadIdx.x / warp_size;
}

/// The scores of a token, from its logits.
template <class W>
struct TokenScores {
  const W* z;
  bool is_softmax, has_nan;
  W max = W(-INFINITY), sum = 0;

  __device__ __forceinline__ TokenScores(const W* logits, int E, bool softmax) : z(logits), is_softmax(softmax) {
    W nan = 0;
    for (int e = lane_of_thread(); e < E; e += warp_size) {
      max = z[e] > max ? z[e] : max;
      if (z[e] != z[e]) nan = 1;
    }
    max = warp_max(max);
    if (is_softmax)
      for (int e = lane_of_thread(); e < E; e += warp_size) sum += exp(z[e] - max);
    sum = warp_sum(sum);
    has_nan = warp_max(nan) > 0 || sum != sum;
  }
  __device__ __forceinline__ W at(int e) const { return is_softmax ? exp(z[e] - max) / sum : 1 / (1 + exp(-z[e])); }
};

template <class W>
struct Candidate {
  W value = W(-INFINITY);
  int index = -1;  // none

  /// Whether it comes before the other one.
  __device__ __forceinline__ bool is_before(const Candidate& other) const {
    if (index < 0 || other.index < 0) return index >= 0;
    return value > other.value || (value == other.value && index < other.index);
  }
  [[nodiscard]] __device__ __forceinline__ Candidate best_of_warp() const {
    Candidate best = *this;
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
      const Candidate other = {__shfl_xor_sync(whole_warp, best.value, distance),
                               __shfl_xor_sync(whole_warp, best.index, distance)};
      if (other.is_before(best)) best = other;
    }
    return best;
  }
};

struct RouterSizes {
  std::int64_t N;
  int E, k;
  RouterRule rule;

  __device__ __forceinline__ bool adds_two() const {
    return rule.group_score == GroupScore::sum_of_two && rule.num_groups > 1;
  }
};

/// What experts are chosen by: logits where the order of scores is theirs. NaN is the smallest.
template <class W>
struct ChoiceValues {
  const TokenScores<W>& scores;
  const float* bias;
  bool are_logits;

  [[nodiscard]] __device__ __forceinline__ W at(int e) const {
    W value = are_logits ? scores.z[e] : scores.at(e);
    if (bias != nullptr) value += static_cast<W>(bias[e]);
    return value != value ? W(-INFINITY) : value;
  }
};

/// One bit for each chosen group: lane g has the value of group g.
template <class W>
__device__ __forceinline__ unsigned chosen_groups(const ChoiceValues<W>& values, const RouterSizes& sizes) {
  const int num_groups = static_cast<int>(sizes.rule.num_groups), size = sizes.E / num_groups, g = lane_of_thread();
  W best = W(-INFINITY), second = W(-INFINITY);
  for (int e = g * size; g < num_groups && e < (g + 1) * size; ++e) {
    const W value = values.at(e);
    if (value > best) {
      second = best;
      best = value;
    } else if (value > second) {
      second = value;
    }
  }
  const W mine = sizes.adds_two() ? best + second : best;
  int num_before = 0;
  for (int other = 0; other < num_groups; ++other) {
    const W value = __shfl_sync(whole_warp, mine, other);
    if (value > mine || (value == mine && other < g)) ++num_before;
  }
  return __ballot_sync(whole_warp, g < num_groups && num_before < sizes.rule.num_chosen_groups);
}

template <class W>
__global__ void __launch_bounds__(block_threads)
    choose_kernel(const W* __restrict__ logits, const float* __restrict__ bias,
                  const std::int32_t* __restrict__ is_routed, std::int32_t* __restrict__ experts,
                  W* __restrict__ weights, RouterSizes sizes) {
  const std::int64_t n = item_of_warp();
  if (n >= sizes.N) return;
  if (is_routed != nullptr && is_routed[n] == 0) {
    for (std::int64_t i = n * sizes.k + lane_of_thread(); i < (n + 1) * sizes.k; i += warp_size) {
      experts[i] = -1;
      weights[i] = 0;
    }
    return;
  }
  const TokenScores<W> scores(logits + n * sizes.E, sizes.E, sizes.rule.scores == ExpertScores::softmax);
  const ChoiceValues<W> values = {scores, bias, bias == nullptr && !sizes.adds_two()};
  const bool has_groups = sizes.rule.num_groups > 1;
  const unsigned groups = has_groups ? chosen_groups(values, sizes) : 1U;
  const int group_size = sizes.E / static_cast<int>(sizes.rule.num_groups);
  Candidate<W> last;
  W sum = 0;
  for (int j = 0; j < sizes.k; ++j) {
    Candidate<W> next;
    for (int e = lane_of_thread(); e < sizes.E; e += warp_size) {
      if ((groups >> (e / group_size) & 1U) == 0) continue;
      const Candidate<W> here = {values.at(e), e};
      if ((j == 0 || last.is_before(here)) && here.is_before(next)) next = here;
    }
    last = next.best_of_warp();
    sum += scores.at(last.index);
    if (lane_of_thread() == 0) experts[n * sizes.k + j] = last.index;
  }
  __syncwarp();
  for (int j = lane_of_thread(); j < sizes.k; j += warp_size) {
    W weight = scores.at(experts[n * sizes.k + j]);
    if (sizes.rule.normalises) weight /= sum + W(1e-20);
    weights[n * sizes.k + j] = scores.has_nan ? W(NAN) : weight * static_cast<W>(sizes.rule.scale);
  }
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    choose_backward_kernel(const Wide<T>* __restrict__ logits, const std::int32_t* __restrict__ experts,
                           const Wide<T>* __restrict__ dweights, const Wide<T>* __restrict__ addend,
                           T* __restrict__ dlogits, RouterSizes sizes) {
  using W = Wide<T>;
  const std::int64_t n = item_of_warp();
  if (n >= sizes.N) return;
  const bool is_softmax = sizes.rule.scores == ExpertScores::softmax;
  const TokenScores<W> scores(logits + n * sizes.E, sizes.E, is_softmax);
  const std::int32_t* chosen = experts + n * sizes.k;
  const W* gradients = dweights + n * sizes.k;
  T* dz = dlogits + n * sizes.E;
  if (chosen[0] < 0) {
    for (int e = lane_of_thread(); e < sizes.E; e += warp_size) dz[e] = narrow<T>(W(0));
    return;
  }
  const auto with_addend = [&](int e, W value) { return addend == nullptr ? value : value + addend[n * sizes.E + e]; };
  const W scale = static_cast<W>(sizes.rule.scale);
  W sum = W(1e-20), product = 0, mean = 0;
  for (int j = 0; j < sizes.k; ++j) {
    sum += scores.at(chosen[j]);
    product += gradients[j] * scores.at(chosen[j]);
  }
  const auto gradient = [&](int j) {
    return scale * (sizes.rule.normalises ? (gradients[j] - product / sum) / sum : gradients[j]);
  };
  for (int j = 0; is_softmax && j < sizes.k; ++j) mean += gradient(j) * scores.at(chosen[j]);
  for (int e = lane_of_thread(); e < sizes.E; e += warp_size)
    dz[e] = narrow<T>(with_addend(e, is_softmax ? -mean * scores.at(e) : W(0)));
  __syncwarp();
  for (int j = lane_of_thread(); j < sizes.k; j += warp_size) {
    const W s = scores.at(chosen[j]);
    dz[chosen[j]] = narrow<T>(with_addend(chosen[j], s * (is_softmax ? gradient(j) - mean : gradient(j) * (1 - s))));
  }
}

/// y may be x: a lane has read a value before it writes there, and no other lane does.
template <class T>
__global__ void __launch_bounds__(block_threads)
    weight_rows_kernel(const T* x, const std::int32_t* __restrict__ slots, const Wide<T>* __restrict__ weights, T* y,
                       std::int64_t R, std::int64_t D) {
  const std::int64_t i = item_of_warp();
  if (i >= R) return;
  const std::int64_t slot = slots[i];
  if (slot < 0) return;
  for (std::int64_t d = slot * D + lane_of_thread(); d < (slot + 1) * D; d += warp_size)
    y[d] = narrow<T>(weights[i] * widen(x[d]));
}

template <class T>
struct WeightedRows {
  const T *dy, *x;
  T *dx, *y;  // y is null where it is not wanted
};

template <class T>
__global__ void __launch_bounds__(block_threads)
    weight_rows_backward_kernel(WeightedRows<T> rows, const std::int32_t* __restrict__ slots,
                                const Wide<T>* __restrict__ weights, Wide<T>* __restrict__ dweights, std::int64_t R,
                                std::int64_t D) {
  const std::int64_t i = item_of_warp();
  if (i >= R) return;
  const std::int64_t slot = slots[i];
  const Wide<T> weight = weights[i];
  Wide<T> sum = 0;
  for (std::int64_t d = lane_of_thread(); slot >= 0 && d < D; d += warp_size) {
    const Wide<T> dy = widen(rows.dy[slot * D + d]), x = widen(rows.x[slot * D + d]);
    sum += dy * x;
    rows.dx[slot * D + d] = narrow<T>(weight * dy);
    if (rows.y != nullptr) rows.y[slot * D + d] = narrow<T>(weight * x);
  }
  sum = warp_sum(sum);
  if (lane_of_thread() == 0) dweights[i] = sum;
}

[[nodiscard]] Launch warp_for_item(std::int64_t count, cudaStream_t stream) {
  return {.num_blocks = blocks_for(count, block_warps), .num_threads = block_threads, .stream = stream};
}

[[nodiscard]] RouterSizes sizes_of(const Tensor& logits, const Tensor& experts, const RouterRule& rule) {
  return {logits.size(0), static_cast<int>(logits.size(1)), static_cast<int>(experts.size(1)), rule};
}

}  // namespace

void CudaOps::compute(const ChooseExpertsArgs& args) {
  const RouterSizes sizes = sizes_of(args.logits, args.experts, args.rule);
  const auto of_type = [&]<class W>(W) {
    launch(warp_for_item(sizes.N, stream()), choose_kernel<W>, numbers<W>(args.logits),
           args.bias.exists() ? numbers<float>(args.bias) : nullptr,
           args.is_routed.exists() ? numbers<std::int32_t>(args.is_routed) : nullptr,
           numbers<std::int32_t>(args.experts), numbers<W>(args.weights), sizes);
  };
  args.logits.dtype == DType::float64 ? of_type(double{}) : of_type(float{});
}

void CudaOps::compute(const ChooseExpertsBackwardArgs& args) {
  const RouterSizes sizes = sizes_of(args.logits, args.experts, args.rule);
  visit_numbers(args.dlogits.dtype, [&]<class T>(T) {
    using W = Wide<on_device<T>>;
    launch(warp_for_item(sizes.N, stream()), choose_backward_kernel<on_device<T>>, numbers<W>(args.logits),
           numbers<std::int32_t>(args.experts), numbers<W>(args.dweights),
           args.addend.exists() ? numbers<W>(args.addend) : nullptr, numbers<T>(args.dlogits), sizes);
  });
}

void CudaOps::compute(const WeightRowsArgs& args) {
  const std::int64_t R = args.x.size(0), D = args.x.size(1);
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    using W = Wide<on_device<T>>;
    launch(warp_for_item(R, stream()), weight_rows_kernel<on_device<T>>, numbers<T>(args.x),
           numbers<std::int32_t>(args.slots), numbers<W>(args.weights), numbers<T>(args.y), R, D);
  });
}

void CudaOps::compute(const WeightRowsBackwardArgs& args) {
  const std::int64_t R = args.x.size(0), D = args.x.size(1);
  visit_numbers(args.x.dtype, [&]<class T>(T) {
    using Value = on_device<T>;
    using W = Wide<Value>;
    const WeightedRows<Value> rows = {numbers<T>(args.dy), numbers<T>(args.x), numbers<T>(args.dx),
                                      args.y.exists() ? numbers<T>(args.y) : nullptr};
    launch(warp_for_item(R, stream()), weight_rows_backward_kernel<Value>, rows, numbers<std::int32_t>(args.slots),
           numbers<W>(args.weights), numbers<W>(args.dweights), R, D);
  });
}

}  // namespace echelon::cuda
