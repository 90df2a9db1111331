// Shuffling without a table: a bijection of [0, size) that any rank can evaluate at one index.
#pragma once

#include <cstdint>

namespace echelon {

/// The image of `index` in the permutation of [0, size) that `key` selects. Cycle-walks a balanced Feistel network on
/// the smallest even number of bits that holds `size` (Black and Rogaway 2002, "Ciphers with arbitrary finite
/// domains"). Constant memory; about four walks at most on average.
[[nodiscard]] std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t key);

/// A well-mixed 64-bit hash of two integers (the finalizer of SplitMix64, Steele et al. 2014).
[[nodiscard]] std::uint64_t mix(std::uint64_t a, std::uint64_t b);

}  // namespace echelon
