#include "nn/init.h"

#include "base/drawn_values.h"
#include "base/error.h"
#include "base/team.h"

#include <algorithm>

namespace echelon {
namespace {

template <class T>
void fill(const Param& param, const TensorSlice& slice, std::int64_t seed, T* out) {
  DrawnValues drawn(stream_of(param), seed);
  if (slice.is_padded()) std::fill_n(out, slice.num_elements(), to<T>(0.0));
  const auto value_at = [&](std::int64_t index) {
    if (param.init_bound != 0.0) return drawn.uniform_at(index, param.init_bound);
    return param.init_std == 0.0 ? param.init_value : param.init_std * drawn.normal_at(index);
  };
  slice.for_each_run([&](const Run& run) {
    for (std::int64_t i = 0; i < run.count; ++i) out[run.local + i] = to<T>(value_at(run.global + i));
  });
}

void fill(const Param& param, const TensorSlice& slice, std::int64_t seed, DType dtype, void* host_out) {
  switch (dtype) {
    case DType::float32: return fill(param, slice, seed, static_cast<float*>(host_out));
    case DType::float64: return fill(param, slice, seed, static_cast<double*>(host_out));
    case DType::bfloat16: return fill(param, slice, seed, static_cast<bfloat16*>(host_out));
    case DType::float16: return fill(param, slice, seed, static_cast<float16*>(host_out));
    case DType::int32:
    case DType::int16: break;
  }
  throw Failure("weights are not integers");
}

}  // namespace

void initialize(const Param& param, const TensorSlice& slice, std::int64_t seed, DType dtype, void* host_out,
                int num_threads) {
  const std::int64_t count = slice.num_elements();
  const std::int64_t block = std::max(std::int64_t{1} << 20, count / Team::most_shares + 1);
  auto fill_block = [&](int share) {
    const std::int64_t first = share * block;
    fill(param, slice.elements({first, std::min(block, count - first)}), seed, dtype,
         static_cast<std::byte*>(host_out) + first * size_of(dtype));
  };
  Team::of_this_thread(num_threads).run(static_cast<int>((count + block - 1) / block), fill_block);
}

}  // namespace echelon
