// What documents leave of attention, on each rank, of the pairs (query, key) that a plan counts for whole sequences.
#pragma once

#include "blueprint/documents/batch_documents.h"
#include "data/batch_source.h"

#include <vector>

namespace echelon {

/// Those of the source, which outlives it.
[[nodiscard]] DocumentsOf documents_of(const BatchSource& source, std::int64_t seq_len);

/// By rank, of all layers: means over the first `num_batches` global batches of the data: pairs over planned pairs.
/// Windows count, as does the order of data.balance_batch.
[[nodiscard]] std::vector<double> attention_shares(const RunConfig& config, const BatchSource& source,
                                                   std::int64_t num_batches);

}  // namespace echelon
