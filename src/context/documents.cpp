#include "context/documents.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {

void find_documents(std::span<const std::int32_t> starts, DocumentOffsets& offsets) {
  offsets.clear();
  std::int32_t last = -1;
  for (const std::int32_t start : starts) {
    if (start != last) offsets.push_back(start);
    last = start;
  }
  offsets.push_back(static_cast<std::int32_t>(starts.size()));
}

void require_documents_of(std::int64_t seq_len, std::span<const std::int32_t> offsets) {
  require(offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == seq_len && std::ranges::is_sorted(offsets),
          "document offsets of a sequence of {} tokens must rise from 0 to {}", seq_len, seq_len);
}

std::int64_t num_pairs(const Visibility& visibility) {
  std::int64_t pairs = 0;
  for (std::size_t i = 1; i < visibility.documents.size(); ++i)
    pairs += num_document_pairs(visibility.documents[i] - visibility.documents[i - 1], visibility.window);
  return pairs;
}

void write_document_positions(std::span<const std::int32_t> tokens, std::span<const std::int32_t> documents,
                              std::span<std::int32_t> ids) {
  const std::int32_t* next_document = documents.data() + 1;
  std::int32_t start = 0;
  std::size_t i = 0;
  for (const std::int32_t token : tokens) {
    while (*next_document <= token) start = *next_document++;
    ids[i++] = token - start;
  }
  std::fill(ids.begin() + static_cast<std::ptrdiff_t>(i), ids.end(), 0);
}

}  // namespace echelon
