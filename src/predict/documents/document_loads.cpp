#include "predict/documents/document_loads.h"

#include "blueprint/unit_trace.h"

#include <utility>

namespace echelon {

DocumentLoads::DocumentLoads(DocumentsOf documents, std::int64_t num_sequences)
    : documents_([of = std::move(documents), num_sequences](std::int64_t sequence, DocumentOffsets& offsets) {
        of(sequence % num_sequences, offsets);
      }),
      counts_{.pairs = {.num_sequences = num_sequences}, .rows = {.num_sequences = num_sequences}} {}

const DocumentLoad& DocumentLoads::of(const RunConfig& config) {
  const Key key = {split_key_of(config),
                   config.parallelism.context_parallel_method,
                   config.training.micro_batch_size,
                   config.num_microbatches(),
                   config.data_parallel_degree(),
                   token_split(config).multiple};
  const auto [known, is_new] = loads_.try_emplace(key);
  if (!is_new) return known->second;
  // Stages have the same, and a mesh of fewer ranks is counted faster.
  RunConfig one_stage = config;
  one_stage.parallelism.pipeline_parallel_degree = 1;
  known->second = document_load(one_stage, documents_, batches_to_count(config), &counts_);
  known->second.rank_shares.clear();
  return known->second;
}

}  // namespace echelon
