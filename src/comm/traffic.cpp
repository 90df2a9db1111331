#include "comm/traffic.h"

#include <algorithm>

namespace echelon {
namespace {

std::int64_t sent_elements(const Traffic& traffic) {
  const std::int64_t n = traffic.group_size, S = traffic.num_elements;
  switch (traffic.kind) {
    case CommKind::all_reduce: {
      const std::int64_t own = owned_range(S, traffic.rank, traffic.group_size).count;
      return (S - own) + (n - 1) * own;
    }
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return (n - 1) * (S / n);
    case CommKind::broadcast: return traffic.rank == traffic.root ? (n - 1) * S : 0;
    case CommKind::send: return S;
    case CommKind::receive:
    case CommKind::barrier: return 0;
  }
  return 0;
}

}  // namespace

std::string_view name_of(CommKind kind) {
  switch (kind) {
    case CommKind::all_reduce: return "all_reduce";
    case CommKind::all_gather: return "all_gather";
    case CommKind::reduce_scatter: return "reduce_scatter";
    case CommKind::broadcast: return "broadcast";
    case CommKind::all_to_all: return "all_to_all";
    case CommKind::send: return "send";
    case CommKind::receive: return "receive";
    case CommKind::barrier: return "barrier";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::max: return "max";
  }
  return "?";
}

std::int64_t sent_bytes(const Traffic& traffic) { return sent_elements(traffic) * size_of(traffic.dtype); }

OwnedRange owned_range(std::int64_t num_elements, int rank, int group_size) {
  const std::int64_t even = num_elements / group_size, longer = num_elements % group_size;
  return {rank * even + std::min<std::int64_t>(rank, longer), even + (rank < longer ? 1 : 0)};
}

}  // namespace echelon
