// Sums and maxima over ranks, added in rank order: float64 in float64, int32 in int32, all else in float32 and rounded
// once. The inner loops of the transports.
//
// Every input is read once and every output written once; an output may be an input, at the same place. The bits do not
// depend on the instruction set, on alignment, or on how a buffer is split.
#pragma once

#include "comm/comm.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace echelon {

/// Streaming stores bypass the caches: for results that are larger than the caches and not read again soon.
enum class Stores : std::uint8_t { cached, streaming };

struct Summation {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  Stores stores = Stores::cached;
};

/// Where in every input and in every output, in bytes.
struct ByteRange {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t num_bytes = 0;
};

/// Every out = in[0] + in[1] + ..., or their maximum, where a NaN stays. At least one input.
void reduce_in_rank_order(const Summation& summation, std::span<const std::byte* const> in,
                          std::span<std::byte* const> out, const ByteRange& range);

/// Every out = in, but for the one that is `in` at that place.
void copy_to_all(std::span<std::byte* const> out, const std::byte* in, const ByteRange& range, Stores stores);

}  // namespace echelon
