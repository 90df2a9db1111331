#include "nn/token_chunks.h"

#include "nn/sharding.h"

#include <algorithm>

namespace echelon {

std::vector<TokenChunk> token_chunks(std::int64_t num_tokens, std::int64_t most, std::int64_t multiple) {
  most = std::clamp<std::int64_t>(most, 1, num_tokens);
  if (most < multiple) multiple = 1;
  if (most < num_tokens) most = most / multiple * multiple;
  const std::int64_t num_chunks = (num_tokens + most - 1) / most;
  std::vector<TokenChunk> chunks;
  if (multiple > 1) {
    const std::int64_t count = ((num_tokens + num_chunks - 1) / num_chunks + multiple - 1) / multiple * multiple;
    for (std::int64_t first = 0; first < num_tokens; first += count)
      chunks.push_back({first, std::min(count, num_tokens - first)});
    return chunks;
  }
  for (std::int64_t i = 0; i < num_chunks; ++i) {
    const Slice slice = even_slice(num_tokens, num_chunks, i);
    chunks.push_back({slice.first, slice.count});
  }
  return chunks;
}

}  // namespace echelon
