// --documents: an .idx file, a distribution of lengths, or a list of them.
#pragma once

#include "blueprint/documents/batch_documents.h"
#include "predict/documents/document_load.h"

#include <optional>
#include <string>

namespace echelon {

inline constexpr const char* documents_help =
    "lengths of documents that attention ends at: an .idx file, MEAN, MEAN:SPREAD, or a list: 9,7";

/// Of a file as a run with this config reads it; of lengths as many as `num_sequences` sequences need.
[[nodiscard]] DocumentsOf asked_documents(const std::string& text, const RunConfig& config, std::int64_t num_sequences);
/// Throws Error for words that are neither a file nor lengths; none at all are allowed.
void require_documents(const std::string& text);
/// Of as many batches as batches_to_count() says. None if no lengths are given.
[[nodiscard]] std::optional<DocumentLoad> asked_load(const std::string& text, const RunConfig& config);
/// The documents of their first sequence.
[[nodiscard]] DocumentOffsets first_sequence(const std::string& text, const RunConfig& config);

}  // namespace echelon
