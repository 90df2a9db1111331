#include "ops/trace/trace_ops.h"

#include <numeric>

namespace echelon {

void TraceOps::perform(const Operation& operation) {
  check(operation);
  const OpCost c = cost(operation);
  const auto* const product = std::get_if<MatmulArgs>(&operation);
  records_.push_back({.kind = kind_of(operation),
                      .dtype = operands_of(operation).dtype,
                      .m = c.m,
                      .n = c.n,
                      .k = c.k,
                      .flops = c.flops,
                      .bytes = c.bytes,
                      .is_float8 = product != nullptr && product->is_float8()});
}

std::int64_t TraceOps::total_flops() const {
  return std::accumulate(records_.begin(), records_.end(), std::int64_t{0},
                         [](std::int64_t sum, const OpRecord& r) { return sum + r.flops; });
}

std::int64_t TraceOps::total_bytes() const {
  return std::accumulate(records_.begin(), records_.end(), std::int64_t{0},
                         [](std::int64_t sum, const OpRecord& r) { return sum + r.bytes; });
}

}  // namespace echelon
