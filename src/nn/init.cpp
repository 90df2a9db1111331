#include "nn/init.h"

#include "base/error.h"
#include "base/philox.h"
#include "base/team.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace echelon {
namespace {

constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
constexpr std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

// The standard normal values of one tensor. Each Philox block gives two of them (Box and Muller 1958).
class Normals {
 public:
  Normals(std::uint64_t stream, std::int64_t seed) : stream_(stream), seed_(static_cast<std::uint64_t>(seed)) {}

  [[nodiscard]] double at(std::int64_t index) {
    const auto pair = static_cast<std::uint64_t>(index) / 2;
    if (!has_pair_ || pair != pair_) draw(pair);
    return values_[static_cast<std::size_t>(index % 2)];
  }

 private:
  void draw(std::uint64_t pair) {
    const auto words = philox4x32_10({low(pair), high(pair), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
    // The first uniform value is in (0, 1], so that its logarithm is finite.
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(words[0], words[1])));
    const double angle = 2.0 * std::numbers::pi * uniform(words[2], words[3]);
    values_ = {radius * std::cos(angle), radius * std::sin(angle)};
    pair_ = pair;
    has_pair_ = true;
  }
  // In [0, 1), of 53 bits.
  static double uniform(std::uint32_t upper, std::uint32_t lower) {
    return static_cast<double>((std::uint64_t{upper} << 32 | lower) >> 11) * 0x1p-53;
  }

  std::uint64_t stream_, seed_;
  std::uint64_t pair_ = 0;
  bool has_pair_ = false;
  std::array<double, 2> values_{};
};

template <class T>
void fill(const Param& param, const TensorSlice& slice, std::int64_t seed, T* out) {
  Normals normals(stream_of(param), seed);
  if (slice.is_padded()) std::fill_n(out, slice.num_elements(), to<T>(0.0));
  slice.for_each_run([&](const Run& run) {
    for (std::int64_t i = 0; i < run.count; ++i)
      out[run.local + i] =
          to<T>(param.init_std == 0.0 ? param.init_value : param.init_std * normals.at(run.global + i));
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
