// What ranks exchange that share one GPU, each as one kernel: it reads what all of them brought and writes what each of
// them gets, with nothing staged between. (Without fmt, whose headers CUDA's compiler does not take.)
#pragma once

#include "cuda/device/device.h"

#include <cstddef>
#include <cstdint>

namespace echelon::cuda {

/// Their addresses are arguments of a kernel.
inline constexpr int max_sharing_ranks = 128;

struct Addresses {
  const std::byte* in[max_sharing_ranks];
  std::byte* out[max_sharing_ranks];
};

/// out[t] + s * out_stride = in[s] + t * in_stride, of num_bytes, for every source s and every target t. Where both are
/// the same place, nothing is done.
struct Copies {
  int num_sources = 1;
  int num_targets = 1;
  std::int64_t num_bytes = 0;
  std::int64_t in_stride = 0;
  std::int64_t out_stride = 0;
};
void enqueue(const Copies& copies, const Addresses& addresses, Device& device, Stream& stream);

/// Part p of all sources, combined in their order: added as comm.h says, or the maximum, where a NaN stays. An output
/// may be the same place of an input.
struct Combination {
  enum class Operation : std::uint8_t { sum, max };
  Operation operation = Operation::sum;
  DType dtype = DType::float32;
  int num_sources = 1;
  int num_parts = 1;          // of every input, equally long
  std::int64_t num_elements;  // of a part
  bool goes_to_all = false;   // a single part goes to all sources; else part p goes to out[p]
};
void enqueue(const Combination& combination, const Addresses& addresses, Device& device, Stream& stream);

}  // namespace echelon::cuda
