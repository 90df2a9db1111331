// What documents leave of attention that a plan counts for whole sequences: pairs (query, key) of each rank of a
// context-parallel group, and rows of keys that travel.
#pragma once

#include "blueprint/blueprint.h"
#include "blueprint/documents/batch_documents.h"
#include "blueprint/traffic/context_traffic.h"
#include "predict/documents/row_counter.h"
#include "predict/software/software_profile.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace echelon {

/// Means over global batches.
struct DocumentLoad {
  std::int64_t num_batches = 0, num_sequences = 0;
  double mean_length = 0;         // tokens of a piece of a document in a sequence
  double pairs_share = 1;         // of all ranks, over those of whole sequences
  double largest_over_mean = 1;   // pairs of the rank with the most in a microbatch, over the mean of the ranks
  double replicas_over_mean = 1;  // likewise of the replica with the most in a batch
  // Of the replica with the most: pairs of the rank with the most in each microbatch, over those that the plan counts
  // for it.
  double slowest_share = 1;
  std::vector<double> rank_shares = {};  // by rank, pairs over planned pairs
  KeyShares keys = {};
  // That all ranks send in all batches, by LayerOptions::windows; of a tensor-parallel and pipeline rank.
  std::vector<KeyRowCounts> rows = {};
};

/// What was counted of sequences, for configs of one model and sequence length.
struct KnownCounts {
  KnownPairs pairs = {};
  KnownRows rows = {};
};

/// Throws Error for a layout whose attention ends at no document. `known`: of earlier calls with these documents.
[[nodiscard]] DocumentLoad document_load(const RunConfig& config, const DocumentsOf& documents_of,
                                         std::int64_t num_batches, KnownCounts* known = nullptr);
/// Where windows alone leave pairs out, in some layers or all.
[[nodiscard]] bool has_windows_alone(const RunConfig& config);
[[nodiscard]] DocumentLoad load_of_whole_sequences(const RunConfig& config);
/// As many batches as have 64 microbatches.
[[nodiscard]] std::int64_t batches_to_count(const RunConfig& config);

/// What all ranks send in a step of training, in bytes, for attention over context parallelism: as a run counts it.
struct ContextBytes {
  double sent = 0;
  std::int64_t planned = 0;
};
[[nodiscard]] ContextBytes context_bytes(const Blueprint& blueprint, const DocumentLoad& load);
/// Other software than Echelon sends as planned.
[[nodiscard]] ContextBytes context_bytes(const Blueprint& blueprint, DocumentLoad load, const SoftwareProfile& profile);

/// The profile, with the attention of these documents and their rows of keys.
[[nodiscard]] SoftwareProfile with_documents(SoftwareProfile profile, const DocumentLoad& load);

[[nodiscard]] std::string to_text(const DocumentLoad& load, const ContextBytes& bytes);
[[nodiscard]] nlohmann::ordered_json to_json(const DocumentLoad& load, const ContextBytes& bytes);

}  // namespace echelon
