// Batches for comparing layouts: synthetic tokens if there is no dataset, and targets that are ignored unevenly over
// sequences. Counts then differ over ranks and microbatches, so that dividing by a wrong count is detected.
#pragma once

#include "data/batch_source.h"

namespace echelon {

/// Tokens depend only on (seed, sequence, position); each is the target of the previous one.
class FormulaTokens final : public BatchSource {
 public:
  FormulaTokens(std::int64_t seed, std::int64_t vocab_size) : seed_(seed), vocab_size_(vocab_size) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override;
  /// A few documents in each sequence, also synthetic.
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override;

 private:
  [[nodiscard]] std::int32_t token(std::int64_t sequence, std::int64_t position) const;

  std::int64_t seed_, vocab_size_;
};

/// Wraps `inner` and ignores targets at the start of each sequence: up to three quarters, a different number in each,
/// never all.
class UnevenTargets final : public BatchSource {
 public:
  /// `inner` must outlive it.
  UnevenTargets(const BatchSource& inner, std::int64_t seed) : inner_(inner), seed_(seed) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override;
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    inner_.read_document_starts(sequence, seq_len, starts);
  }
  [[nodiscard]] std::int64_t num_tokens(std::int64_t sequence, std::int64_t seq_len) const override {
    return inner_.num_tokens(sequence, seq_len);
  }

 private:
  const BatchSource& inner_;
  std::int64_t seed_;
};

}  // namespace echelon
