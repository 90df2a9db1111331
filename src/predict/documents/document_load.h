// What documents leave of attention that a plan counts for whole sequences: pairs (query, key) of each rank of a
// context-parallel group, and rows of keys that some query of another rank sees. Sequences are consecutive pieces of a
// stream of documents.
#pragma once

#include "spec/config/run_config.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace echelon {

/// Means over microbatches.
struct DocumentLoad {
  std::int64_t num_sequences = 0;
  double mean_length = 0;        // tokens of a piece of a document in a sequence
  double pairs_share = 1;        // of all ranks, over those of whole sequences
  double largest_over_mean = 1;  // pairs of the rank with the most, over the mean of the ranks
  double slowest_share = 1;      // pairs of the rank with the most, over those that the plan counts for it
  double rows_share = 1;         // rows of keys that hops could do with, over those that a ring sends; 1 without a ring
};

/// Of as many microbatches as the stream fills, at most `most_microbatches`. Throws Error if it fills none, and for a
/// layout whose attention ends at no document.
[[nodiscard]] DocumentLoad document_load(const RunConfig& config, std::span<const std::int64_t> lengths,
                                         std::int64_t most_microbatches = 64);

/// Lengths of at least a token with a lognormal distribution of this mean and standard deviation, until they add up to
/// `num_tokens`. The same on every machine.
[[nodiscard]] std::vector<std::int64_t> drawn_lengths(double mean, double spread, std::int64_t num_tokens);

/// "MEAN" or "MEAN:SPREAD"; the spread is the mean if it is left out. Throws Error naming the flag.
[[nodiscard]] std::pair<double, double> parse_length_distribution(std::string_view text);

[[nodiscard]] std::string to_text(const DocumentLoad& load);

}  // namespace echelon
