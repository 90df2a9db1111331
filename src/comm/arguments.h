// What every transport requires of its tensors: the checks that all transports share. Each throws Error with the sizes
// found and needed.
#pragma once

#include "comm/comm.h"

namespace echelon {

void check_all_gather(const Comm& comm, const Tensor& full, const Tensor& shard);
void check_reduce_scatter(const Comm& comm, const Tensor& shard, const Tensor& full);
void check_all_to_all(const Comm& comm, const Tensor& received, const Tensor& sent);
void check_exchange_columns(const Comm& comm, const ColumnExchange& exchange);
void check_all_to_all_rows(const Comm& comm, const RowExchange& exchange);
/// Rows that go to other ranks.
[[nodiscard]] std::int64_t sent_rows(const Comm& comm, std::span<const RowPart> sent_parts);
/// A root is a rank of the group; a peer is another one.
void check_root(const Comm& comm, int root);
void check_peer(const Comm& comm, int peer);

}  // namespace echelon
