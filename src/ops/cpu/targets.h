// Which instruction sets the kernels are compiled for: the scalar baseline, AVX2 and AVX-512, and on Arm NEON. Not SVE:
// its vectors have no size at compile time, so they cannot be elements of arrays, which the sums of matmuls and of
// attention are. Included before any header of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
