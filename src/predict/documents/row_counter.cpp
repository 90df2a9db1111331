#include "predict/documents/row_counter.h"

#include "blueprint/unit_trace.h"
#include "context/key_blocks.h"

#include <algorithm>
#include <numeric>

namespace echelon {

void RowSums::end_microbatch() {
  for (std::size_t hop = 0; hop < all_.size(); ++hop) {
    largest_[hop] += std::ranges::max(of_places_[hop]);
    all_[hop] += std::accumulate(of_places_[hop].begin(), of_places_[hop].end(), std::int64_t{0});
    std::ranges::fill(of_places_[hop], 0);
  }
}

std::int64_t RowSums::all() const { return std::accumulate(all_.begin(), all_.end(), std::int64_t{0}); }

RowShares RowSums::shares(double planned) const {
  RowShares shares;
  for (std::size_t hop = 0; hop < all_.size(); ++hop) {
    shares.slowest.push_back(static_cast<double>(largest_[hop]) / planned);
    shares.mean.push_back(static_cast<double>(all_[hop]) / (planned * static_cast<double>(of_places_[hop].size())));
  }
  return shares;
}

RowCounter::RowCounter(const RunConfig& config, KnownRows* known)
    : key_(split_key_of(config)),
      known_(known),
      split_(token_split(config)),
      exchange_(key_exchange(config.parallelism)),
      num_sequences_(config.training.micro_batch_size),
      n_(split_.cp / exchange_.head_ranks) {
  const RowSums none(num_hops(), static_cast<std::size_t>(n_));
  for (const std::int64_t window : windows_with_ranges(config)) windows_.push_back({window, none, none});
}

void RowCounter::add_microbatch(const BatchDocuments& batch, int replica, int microbatch) {
  for (std::int64_t row = 0; row < num_sequences_; ++row) {
    const BatchPlace place = {replica, microbatch, row};
    if (known_ == nullptr) {
      add(counted(batch.documents(place)));
      continue;
    }
    auto& rows = known_->by_hop[{key_, exchange_.method, batch.sequence_at(place) % known_->num_sequences}];
    if (rows.empty()) rows = counted(batch.documents(place));
    add(rows);
  }
  for (WindowRows& each : windows_) {
    each.keys.end_microbatch();
    each.gradients.end_microbatch();
  }
  ++num_microbatches_;
}

std::vector<std::int64_t> RowCounter::counted(const DocumentOffsets& documents) {
  lists_.assign(split_, documents);
  const std::size_t size = num_hops() * static_cast<std::size_t>(n_);
  std::vector<std::int64_t> rows(windows_.size() * 2 * size, 0);
  for (std::size_t w = 0; w < windows_.size(); ++w) {
    traffic_.count(lists_, {documents, windows_[w].window}, exchange_.head_ranks);
    const auto keys = std::span(rows).subspan(2 * w * size, size),
               gradients = std::span(rows).subspan((2 * w + 1) * size, size);
    is_gathered() ? count_gather(keys, gradients) : count_ring(keys, gradients);
  }
  return rows;
}

void RowCounter::add(std::span<const std::int64_t> rows) {
  const std::size_t size = num_hops() * static_cast<std::size_t>(n_);
  for (WindowRows& each : windows_) {
    for (std::size_t hop = 0; hop < num_hops(); ++hop)
      for (int place = 0; place < n_; ++place) {
        each.keys.add(hop, place, rows[at(hop, place)]);
        each.gradients.add(hop, place, rows[size + at(hop, place)]);
      }
    rows = rows.subspan(2 * size);
  }
}

KeyShares RowCounter::shares() const {
  const std::int64_t rows = KeyBlockSizes(split_, exchange_, 0).num_query_rows() * (is_gathered() ? n_ - 1 : 1);
  const auto planned = static_cast<double>(num_microbatches_ * num_sequences_ * rows);
  KeyShares shares;
  for (const WindowRows& each : windows_)
    shares.of_windows.push_back({each.keys.shares(planned), each.gradients.shares(planned)});
  return shares;
}

std::vector<KeyRowCounts> RowCounter::rows() const {
  const std::int64_t u = exchange_.head_ranks;
  std::vector<KeyRowCounts> rows;
  for (const WindowRows& each : windows_) rows.push_back({u * each.keys.all(), u * each.gradients.all()});
  return rows;
}

void RowCounter::count_ring(std::span<std::int64_t> keys, std::span<std::int64_t> gradients) const {
  for (int source = 0; source < n_; ++source)
    for (int hop = 1; hop < n_; ++hop) {
      const auto index = static_cast<std::size_t>(hop - 1);
      keys[at(index, (source + hop - 1) % n_)] += traffic_.ring(source, hop);
      gradients[at(index, (source + hop) % n_)] += traffic_.ring_gradients(source, hop);
    }
}

void RowCounter::count_gather(std::span<std::int64_t> keys, std::span<std::int64_t> gradients) const {
  for (int source = 0; source < n_; ++source)
    for (int destination = 0; destination < n_; ++destination) {
      keys[at(0, source)] += traffic_.seen(source, destination);
      gradients[at(0, destination)] += traffic_.seen(source, destination);
    }
}

}  // namespace echelon
