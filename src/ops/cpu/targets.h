// Which instruction sets the kernels are compiled for: the scalar baseline, AVX2 and AVX-512 (and whatever Highway has
// for other architectures). Included before any header of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
