#include "comm/arguments.h"

#include "base/error.h"

#include <tuple>

namespace echelon {
namespace {

void check_shards(std::string_view operation, const Comm& comm, const Tensor& shard, const Tensor& full) {
  require(shard.dtype == full.dtype, "{}: the shard is {} but the full tensor is {}; they must be equal", operation,
          name_of(shard.dtype), name_of(full.dtype));
  require(shard.num_elements() * comm.size() == full.num_elements(),
          "{}: {} shards of {} elements do not make a full tensor of {}; it needs {}", operation, comm.size(),
          shard.num_elements(), full.num_elements(), shard.num_elements() * comm.size());
}

}  // namespace

void check_all_gather(const Comm& comm, const Tensor& full, const Tensor& shard) {
  check_shards("all_gather", comm, shard, full);
}

void check_reduce_scatter(const Comm& comm, const Tensor& shard, const Tensor& full) {
  check_shards("reduce_scatter", comm, shard, full);
}

void check_all_to_all(const Comm& comm, const Tensor& received, const Tensor& sent) {
  require(received.dtype == sent.dtype, "all_to_all: received is {} but sent is {}; they must be equal",
          name_of(received.dtype), name_of(sent.dtype));
  require(received.num_elements() == sent.num_elements(),
          "all_to_all: received has {} elements but sent has {}; they must be equally long", received.num_elements(),
          sent.num_elements());
  require(sent.num_elements() % comm.size() == 0,
          "all_to_all: {} elements cannot be split into {} equal parts (use {})", sent.num_elements(), comm.size(),
          sent.num_elements() / comm.size() * comm.size());
}

void check_exchange_columns(const Comm& comm, const ColumnExchange& exchange) {
  const auto& [received, sent, rows, gathers_rows] = exchange;
  const Tensor &own = gathers_rows ? sent : received, &all = gathers_rows ? received : sent;
  require(received.dtype == sent.dtype && own.sizes.num_dims() == 3 && all.sizes.num_dims() == 2 &&
              own.size(1) == comm.size() && own.size(2) == all.size(1),
          "exchange_columns: between {} {} and {} {} on {} ranks; it needs [N, ranks, W] and [M, W] of one dtype",
          name_of(own.dtype), to_string(own.sizes), name_of(all.dtype), to_string(all.sizes), comm.size());
  require(std::ssize(rows) == (gathers_rows ? all.size(0) : own.size(0) * comm.size()),
          "exchange_columns: there are {} rows for {} {}", rows.size(), to_string(own.sizes), to_string(all.sizes));
}

void check_all_to_all_rows(const Comm& comm, const RowExchange& exchange) {
  const auto& [received, sent, received_parts, sent_parts, purpose] = exchange;
  require(received.dtype == sent.dtype && received.sizes.num_dims() == 2 && sent.sizes.num_dims() == 2 &&
              received.size(1) == sent.size(1),
          "all_to_all_rows: received is {} {} but sent is {} {}; they must be matrices of equally many columns",
          name_of(received.dtype), to_string(received.sizes), name_of(sent.dtype), to_string(sent.sizes));
  for (const auto& [name, parts, rows] :
       {std::tuple{"received", received_parts, received.size(0)}, {"sent", sent_parts, sent.size(0)}}) {
    require(std::ssize(parts) == comm.size(), "all_to_all_rows: {} has {} parts for a group of {}", name, parts.size(),
            comm.size());
    for (const RowPart& part : parts)
      require(part.first >= 0 && part.count >= 0 && part.first + part.count <= rows,
              "all_to_all_rows: a part of {} has rows {} to {}, but there are {}", name, part.first,
              part.first + part.count, rows);
  }
}

std::int64_t sent_rows(const Comm& comm, std::span<const RowPart> sent_parts) {
  std::int64_t rows = 0;
  for (int peer = 0; peer < comm.size(); ++peer)
    if (peer != comm.rank()) rows += sent_parts[static_cast<std::size_t>(peer)].count;
  return rows;
}

void check_root(const Comm& comm, int root) {
  require(root >= 0 && root < comm.size(), "broadcast: root = {} is not a rank of a group of {} (use {})", root,
          comm.size(), root < 0 ? 0 : comm.size() - 1);
}

void check_peer(const Comm& comm, int peer) {
  require(peer >= 0 && peer < comm.size() && peer != comm.rank(),
          "peer = {} is not another rank of a group of {} for rank {}", peer, comm.size(), comm.rank());
}

}  // namespace echelon
