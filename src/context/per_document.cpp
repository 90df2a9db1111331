#include "context/per_document.h"

#include <algorithm>

namespace echelon {

void append_per_document(std::span<const std::int32_t> documents, int cp, std::vector<TokenRun>& runs) {
  const int num_chunks = 2 * cp;
  int turn = 0;  // of 2 cp, of which the second half goes down the ranks
  for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
    const std::int32_t length = documents[d + 1] - documents[d], chunk = length / num_chunks;
    std::int32_t position = documents[d];
    for (std::int32_t i = 0; i < length % num_chunks; ++i, ++position) {
      runs.push_back({position, position + 1, std::min(turn, num_chunks - 1 - turn)});
      turn = turn + 1 == num_chunks ? 0 : turn + 1;
    }
    for (int c = 0; c < num_chunks && chunk > 0; ++c, position += chunk)
      runs.push_back({position, position + chunk, std::min(c, num_chunks - 1 - c)});
  }
}

}  // namespace echelon
