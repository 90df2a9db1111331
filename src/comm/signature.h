// What the ranks of a group must agree on when they start an operation, and its text in messages.
#pragma once

#include "comm/traffic.h"

#include <string>
#include <vector>

namespace echelon {

/// What all parties must agree on. A transfer is of kind `send` for both of its parties.
struct Signature {
  CommKind kind = CommKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::float32;
  std::int64_t num_elements = 0;  // of the full buffer; with parts, of a row
  int root = 0;
  bool has_parts = false;  // an all_to_all of parts of unequal length
  // Of an exchange of columns: W, and M where it gathers rows, or else -M; else 0.
  std::int64_t num_columns = 0, num_rows = 0;
  bool operator==(const Signature&) const = default;
};
[[nodiscard]] std::string to_string(const Signature& signature);  // "all_reduce(sum) of 16 float32"

/// "ranks 0, 1, 2", with the first few of many.
[[nodiscard]] std::string listed(const std::vector<int>& ranks);

}  // namespace echelon
