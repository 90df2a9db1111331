#include "nn/param_slice.h"

#include <algorithm>

namespace echelon {

ParamSlice slice_of(const Param& param) {
  const int dim = std::max(param.split_dim, 0);
  ParamSlice slice;
  for (int d = 0; d < param.global_sizes.num_dims(); ++d) {
    if (d < dim) slice.outer *= param.global_sizes[d];
    if (d > dim) slice.inner *= param.global_sizes[d];
  }
  slice.global_count = param.global_sizes[dim];
  slice.first = param.split_dim < 0 ? 0 : param.split_first;
  slice.count = param.split_dim < 0 ? slice.global_count : param.split_count;
  return slice;
}

// FNV-1a, 64 bits, unlike std::hash.
std::uint64_t stream_of(const Param& param) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : param.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace echelon
