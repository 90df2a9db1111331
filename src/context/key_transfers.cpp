#include "context/key_transfers.h"

#include <numeric>
#include <utility>

namespace echelon {
namespace {

std::int64_t num_sent(const std::vector<RowTransfer>& transfers) {
  return std::accumulate(transfers.begin(), transfers.end(), std::int64_t{0},
                         [](std::int64_t sum, const RowTransfer& each) { return sum + num_rows(each.sent); });
}

}  // namespace

void KeyTransfers::assign(const TokenLists& lists, const KeyBlocks& blocks, const KeyExchange& exchange, int rank,
                          const Visibility& visibility) {
  exchange.method == ContextMethod::all_gather ? assign_gather(lists, rank, visibility)
                                               : assign_ring(lists, blocks, visibility);
}

void KeyTransfers::clear(int num_blocks) {
  for (auto* const transfers : {&keys_, &gradients_}) {
    transfers->resize(static_cast<std::size_t>(num_blocks));
    for (RowTransfer& each : *transfers) each.sent.clear(), each.received.clear();
  }
}

void KeyTransfers::find_seen(const QueriesAndKeys& rows, const Visibility& visibility, RowRuns& seen) {
  begin_.resize(rows.queries.size());
  end_.resize(rows.queries.size());
  write_key_ranges(rows, visibility, {begin_, end_});
  find_seen_rows(begin_, end_, seen);
}

void KeyTransfers::assign_gather(const TokenLists& lists, int rank, const Visibility& visibility) {
  const int n = lists.cp();
  clear(n);
  const auto own = lists.positions(rank);
  for (int distance = 1; distance < n; ++distance) {
    RowTransfer &keys = keys_[static_cast<std::size_t>(distance)],
                &gradients = gradients_[static_cast<std::size_t>(distance)];
    find_seen({lists.positions((rank + distance) % n), own}, visibility, keys.sent);
    find_seen({own, lists.positions((rank - distance + n) % n)}, visibility, keys.received);
    gradients = {.sent = keys.received, .received = keys.sent};
  }
}

void KeyTransfers::assign_ring(const TokenLists& lists, const KeyBlocks& blocks, const Visibility& visibility) {
  const int n = blocks.num_blocks();
  clear(n);
  seen_.resize(static_cast<std::size_t>(n));
  for (int block = 0; block < n; ++block) {
    for (int distance = 1; distance < n; ++distance)
      find_seen({blocks.keys(lists, (block + distance) % n), blocks.keys(lists, block)}, visibility,
                seen_[static_cast<std::size_t>(distance)]);
    add_block((blocks.own_block() - block + n) % n);
  }
}

// The rank sends the block on from `own`, and receives it from the rank before, which has it at the distance before.
void KeyTransfers::add_block(int own) {
  const int n = static_cast<int>(seen_.size()), before = (own + n - 1) % n;
  const auto add = [&](std::vector<RowTransfer>& transfers, int distance) {
    RowTransfer& transfer = transfers[static_cast<std::size_t>(distance)];
    if (distance == own) transfer.sent = rows_;
    if (distance == before) transfer.received = rows_;
  };
  const auto unite_with = [&](int distance) {
    unite(rows_, seen_[static_cast<std::size_t>(distance)], united_);
    std::swap(rows_, united_);
  };
  rows_.clear();
  for (int distance = n - 2; distance >= 0; --distance) {
    unite_with(distance + 1);
    add(keys_, distance);
  }
  rows_.clear();
  for (int distance = 1; distance < n; ++distance) {
    unite_with(distance);
    add(gradients_, distance);
  }
}

std::int64_t KeyTransfers::num_keys_sent() const { return num_sent(keys_); }
std::int64_t KeyTransfers::num_gradients_sent() const { return num_sent(gradients_); }

}  // namespace echelon
