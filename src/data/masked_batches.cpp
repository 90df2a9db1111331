#include "data/masked_batches.h"

#include "tensor/tokens.h"

#include <algorithm>

namespace echelon {
namespace {

// SplitMix64's finalizer (Steele et al. 2014): neighbouring inputs give unrelated outputs.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EB;
  return x ^ (x >> 31U);
}

std::uint64_t mixed(std::int64_t seed, std::int64_t sequence, std::int64_t position) {
  return mixed(mixed(mixed(static_cast<std::uint64_t>(seed)) + static_cast<std::uint64_t>(sequence)) +
               static_cast<std::uint64_t>(position));
}

}  // namespace

void FormulaTokens::read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens,
                         std::int32_t* targets) const {
  for (std::int64_t i = 0; i < seq_len; ++i) {
    tokens[i] = token(sequence, i);
    targets[i] = token(sequence, i + 1);
  }
}

void FormulaTokens::read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const {
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < seq_len; ++i) {
    if (mixed(~seed_, sequence, i) % static_cast<std::uint64_t>(seq_len) < 3) start = i;
    starts[i] = static_cast<std::int32_t>(start);
  }
}

std::int32_t FormulaTokens::token(std::int64_t sequence, std::int64_t position) const {
  return static_cast<std::int32_t>(mixed(seed_, sequence, position) % static_cast<std::uint64_t>(vocab_size_));
}

void UnevenTargets::read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens,
                         std::int32_t* targets) const {
  inner_.read(sequence, seq_len, tokens, targets);
  const auto num_ignored =
      static_cast<std::int64_t>(mixed(seed_, sequence, -1) % static_cast<std::uint64_t>(3 * seq_len / 4 + 1));
  std::fill(targets, targets + num_ignored, ignored_target);
}

}  // namespace echelon
