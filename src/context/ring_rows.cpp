#include "context/ring_rows.h"

#include "context/key_ranges.h"

#include <numeric>
#include <utility>

namespace echelon {
namespace {

std::int64_t num_sent(const std::vector<RowTransfer>& transfers) {
  return std::accumulate(transfers.begin(), transfers.end(), std::int64_t{0},
                         [](std::int64_t sum, const RowTransfer& each) { return sum + num_rows(each.sent); });
}

}  // namespace

void RingRows::assign(const KeyBlocks& blocks, const Visibility& visibility) {
  const int n = blocks.num_blocks(), place = blocks.own_block();
  for (auto* const transfers : {&keys_, &gradients_}) {
    transfers->resize(static_cast<std::size_t>(n));
    for (RowTransfer& each : *transfers) each.sent.clear(), each.received.clear();
  }
  seen_.resize(static_cast<std::size_t>(n));
  for (int block = 0; block < n; ++block) {
    for (int distance = 1; distance < n; ++distance) {
      const std::span<const std::int32_t> queries = blocks.keys((block + distance) % n);
      begin_.resize(queries.size());
      end_.resize(queries.size());
      write_key_ranges({queries, blocks.keys(block)}, visibility, {begin_, end_});
      find_seen_rows(begin_, end_, seen_[static_cast<std::size_t>(distance)]);
    }
    add_block((place - block + n) % n);
  }
}

// The rank sends the block on from `own`, and receives it from the rank before, which has it at the distance before.
void RingRows::add_block(int own) {
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

std::int64_t RingRows::num_keys_sent() const { return num_sent(keys_); }
std::int64_t RingRows::num_gradients_sent() const { return num_sent(gradients_); }

}  // namespace echelon
