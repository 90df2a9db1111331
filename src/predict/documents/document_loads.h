// What documents leave of the layouts of a search. Thousands of layouts differ in a few things that decide this, and a
// sequence is counted once for each way to distribute its tokens.
#pragma once

#include "predict/documents/document_load.h"

#include <map>
#include <tuple>

namespace echelon {

/// Not thread-safe.
class DocumentLoads {
 public:
  /// The first `num_sequences`, over and over.
  DocumentLoads(DocumentsOf documents, std::int64_t num_sequences);

  /// Of configs that differ in their layouts alone: document_load() of these sequences, without shares of ranks.
  [[nodiscard]] const DocumentLoad& of(const RunConfig& config);
  /// Echelon's, with this load.
  [[nodiscard]] SoftwareProfile profile_of(const RunConfig& config) { return with_documents({}, of(config)); }
  [[nodiscard]] const DocumentsOf& documents() const { return documents_; }

 private:
  // Also the method, sequences of a microbatch, microbatches, replicas, and of what the rows of a rank are a multiple.
  using Key = std::tuple<TokenSplitKey, ContextMethod, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

  DocumentsOf documents_;
  KnownCounts counts_;
  std::map<Key, DocumentLoad> loads_;
};

}  // namespace echelon
