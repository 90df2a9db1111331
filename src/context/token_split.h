// What decides which tokens of a sequence each rank of a cp group holds, next to the documents.
#pragma once

#include "context/load_balancer.h"

#include <cstdint>

namespace echelon {

struct TokenSplit {
  std::int64_t seq_len = 0;
  int cp = 1;
  LoadBalancer balancer = LoadBalancer::headtail;
  std::int64_t multiple = 1;  // of the rows of a rank: tp where sequence parallelism splits them again, 16 in float8
  std::int64_t window = 0;    // of the attention whose pairs `packed` evens out; 0: no limit
  std::int64_t other_window = 0;  // of blocks that have another one; 0: there are none

  friend bool operator==(const TokenSplit&, const TokenSplit&) = default;
};

}  // namespace echelon
