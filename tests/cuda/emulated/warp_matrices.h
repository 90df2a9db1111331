// The instructions behind src/cuda/device/mma.h, lane by lane.
#pragma once

#include "cuda/emulated/execution.h"

namespace emulated {

/// mma.sync.m16n8k16 of bfloat16, with sums in float32: c [16, 8] += a [16, 16] b [16, 8].
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

/// ldmatrix.m8n8.x4 of 16-bit numbers. Places are bytes from the start of the block's dynamic shared memory. Throws
/// std::runtime_error if a row does not lie there or is not aligned to 16 bytes.
void load_matrices(std::uint32_t (&out)[4], std::uint32_t row, bool is_transposed);

/// cp.async: from here on the destination holds NaN; the source is read, and the destination written, only when its
/// group is waited for, since that is the latest that CUDA allows. Throws std::runtime_error for a destination outside
/// of the block's shared memory or an address that is not aligned. A null `global` copies zeros.
void begin_copy(std::uint32_t shared, const void* global, int num_bytes);
void close_group_of_copies();
void wait_for_copies_but_last(int count);

}  // namespace emulated
