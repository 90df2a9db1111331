// A rank's part of a global batch on the host: its tokens, which keys each of them sees, and where it is.
#pragma once

#include "blueprint/batch_layout.h"
#include "context/documents.h"
#include "data/batch_source.h"
#include "executor/action_executor.h"

#include <vector>

namespace echelon {

class RankBatch {
 public:
  /// Of the model's tokens, as they are in a global batch of `config`. Both outlive the batch.
  RankBatch(const RunConfig& config, const ModelPart& model, int rank);

  /// The global batch that starts with `first_sequence`. Throws Error for data that cannot be read; then nothing is
  /// held.
  void read(const BatchSource& source, std::int64_t first_sequence);
  [[nodiscard]] bool holds(const BatchSource* source, std::int64_t first_sequence) const {
    return source_ != nullptr && source_ == source && first_sequence_ == first_sequence;
  }
  void release() { source_ = nullptr; }

  [[nodiscard]] HostBatch values() const;
  [[nodiscard]] std::int64_t num_targets() const;  // those that are not ignored

 private:
  /// Sequence `row` of a microbatch, whole on this rank or its part of it.
  void read_whole(std::int64_t sequence, std::size_t row);
  void read_part(std::int64_t sequence, std::size_t row);
  void write_begins(std::int64_t sequence, std::size_t row);
  void write_ranges(std::size_t row);

  void make_room();

  const RunConfig* config_;
  const ModelPart* model_;
  std::vector<std::int64_t> sequences_of_first_;  // of the batch that starts with sequence 0
  const BatchSource* source_ = nullptr;
  std::int64_t first_sequence_ = 0;
  std::vector<std::int32_t> tokens_, targets_, key_begin_, key_end_, positions_;
  std::vector<std::int32_t> all_tokens_, all_targets_, starts_;  // of one sequence
  DocumentOffsets documents_;
};

}  // namespace echelon
