// What an operation of a communicator sends: closed forms of the direct algorithms, for S elements among n ranks.
//
//     all_reduce       rank r sends its parts of the sum to their owners and the sum of its own part to everybody:  (S
//                      - S_r) + (n - 1) S_r
//     reduce_scatter   (n - 1)/n S          all_gather   (n - 1)/n S          all_to_all   (n - 1)/n S
//     broadcast        (n - 1) S by the root          send   S          receive, barrier   0
//
// An all-reduced buffer is split as evenly as possible: the first S mod n parts S_r have one element more.
#pragma once

#include "comm/comm.h"

#include <cstdint>
#include <string_view>

namespace echelon {

enum class CommKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier
};
[[nodiscard]] std::string_view name_of(CommKind kind);
[[nodiscard]] std::string_view name_of(ReduceOp op);

/// One operation as one rank of the group sees it.
struct Traffic {
  CommKind kind = CommKind::barrier;
  int rank = 0;                   // within the group
  int group_size = 1;             // n
  std::int64_t num_elements = 0;  // S, of the full buffer
  DType dtype = DType::float32;
  int root = 0;  // of a broadcast
};

/// Bytes that the rank sends.
[[nodiscard]] std::int64_t sent_bytes(const Traffic& traffic);

/// The elements [first, first + count) that a rank owns of a buffer that is all-reduced.
struct OwnedRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
[[nodiscard]] OwnedRange owned_range(std::int64_t num_elements, int rank, int group_size);

}  // namespace echelon
