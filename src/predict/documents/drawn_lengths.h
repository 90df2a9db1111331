// Lengths of documents that a distribution or a list describes.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon {

/// Lengths of at least a token with a lognormal distribution of this mean and standard deviation, until they add up to
/// `num_tokens`. The same on every machine.
[[nodiscard]] std::vector<std::int64_t> drawn_lengths(double mean, double spread, std::int64_t num_tokens);

/// "MEAN" or "MEAN:SPREAD"; the spread is the mean if it is left out. Throws Error naming the flag.
[[nodiscard]] std::pair<double, double> parse_length_distribution(std::string_view text);

/// Those of a distribution, or of a list such as "9,7" over and over, until they add up to `num_tokens`. Throws Error
/// naming the flag.
[[nodiscard]] std::vector<std::int64_t> described_lengths(std::string_view text, std::int64_t num_tokens);

}  // namespace echelon
