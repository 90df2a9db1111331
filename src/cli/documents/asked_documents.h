// --documents: an .idx file, or a distribution of lengths.
#pragma once

#include "blueprint/documents/batch_documents.h"
#include "predict/documents/document_load.h"

#include <optional>
#include <string>

namespace echelon {

inline constexpr const char* documents_help =
    "lengths of the documents that attention ends at: an .idx file, or MEAN or MEAN:SPREAD in tokens";

/// Of a file as a run with this config reads it; of drawn lengths as many as `num_sequences` sequences need.
[[nodiscard]] DocumentsOf asked_documents(const std::string& text, const RunConfig& config, std::int64_t num_sequences);
/// Throws Error for words that are neither a file nor a distribution; none at all are allowed.
void require_documents(const std::string& text);
/// Of as many batches as batches_to_count() says. None if no lengths are given.
[[nodiscard]] std::optional<DocumentLoad> asked_load(const std::string& text, const RunConfig& config);
/// The documents of their first sequence.
[[nodiscard]] DocumentOffsets first_sequence(const std::string& text, const RunConfig& config);

}  // namespace echelon
