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

}  // namespace echelon
