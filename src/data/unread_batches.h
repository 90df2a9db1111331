// Batches for what computes nothing.
#pragma once

#include "data/batch_source.h"

#include <cstdint>

namespace echelon {

/// Tokens and documents are not read, and nothing is written.
class UnreadBatches final : public BatchSource {
 public:
  void read(std::int64_t, std::int64_t, std::int32_t*, std::int32_t*) const override {}
  void read_document_starts(std::int64_t, std::int64_t, std::int32_t*) const override {}
};

}  // namespace echelon
