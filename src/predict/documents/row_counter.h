// Rows of keys, and of their gradients, that travel in the microbatches of a run.
#pragma once

#include "blueprint/documents/batch_documents.h"
#include "blueprint/traffic/context_traffic.h"
#include "context/key_traffic.h"
#include "predict/software/key_shares.h"

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace echelon {

/// Of keys, or of their gradients, by hop and place in the ring.
class RowSums {
 public:
  RowSums(std::size_t num_hops, std::size_t num_places) : largest_(num_hops, 0), all_(num_hops, 0) {
    of_places_.assign(num_hops, std::vector<std::int64_t>(num_places));
  }
  /// Of a microbatch.
  void add(std::size_t hop, int place, std::int64_t rows) { of_places_[hop][static_cast<std::size_t>(place)] += rows; }
  void end_microbatch();

  [[nodiscard]] std::int64_t all() const;
  /// `planned`: of a place at a hop.
  [[nodiscard]] RowShares shares(double planned) const;

 private:
  std::vector<std::int64_t> largest_, all_;           // by hop
  std::vector<std::vector<std::int64_t>> of_places_;  // of this microbatch, by hop and place
};

/// Rows of sequences that were counted: by window, of keys, then of gradients, by hop and place. As KnownPairs.
struct KnownRows {
  std::int64_t num_sequences = 1;
  std::map<std::tuple<TokenSplitKey, ContextMethod, std::int64_t>, std::vector<std::int64_t>> by_hop = {};
};

class RowCounter {
 public:
  /// Of a layout that skips rows (skips_unseen_keys). `known`, if there is one, outlives it.
  explicit RowCounter(const RunConfig& config, KnownRows* known = nullptr);

  void add_microbatch(const BatchDocuments& batch, int replica, int microbatch);

  [[nodiscard]] KeyShares shares() const;
  /// That all ranks of a tensor-parallel and pipeline rank send, by window.
  [[nodiscard]] std::vector<KeyRowCounts> rows() const;

 private:
  [[nodiscard]] bool is_gathered() const { return exchange_.method == ContextMethod::all_gather; }
  [[nodiscard]] std::size_t num_hops() const { return is_gathered() ? 1 : static_cast<std::size_t>(n_ - 1); }
  [[nodiscard]] std::size_t at(std::size_t hop, int place) const {
    return hop * static_cast<std::size_t>(n_) + static_cast<std::size_t>(place);
  }
  /// Rows of one sequence, as KnownRows has them.
  [[nodiscard]] std::vector<std::int64_t> counted(const DocumentOffsets& documents);
  void count_ring(std::span<std::int64_t> keys, std::span<std::int64_t> gradients) const;
  void count_gather(std::span<std::int64_t> keys, std::span<std::int64_t> gradients) const;
  void add(std::span<const std::int64_t> rows);

  struct WindowRows {
    std::int64_t window;
    RowSums keys, gradients;
  };

  TokenSplitKey key_;
  KnownRows* known_;
  TokenSplit split_;
  KeyExchange exchange_;
  std::int64_t num_sequences_, num_microbatches_ = 0;
  int n_;  // blocks
  TokenLists lists_;
  KeyTraffic traffic_;
  std::vector<WindowRows> windows_;  // by LayerOptions::windows
};

}  // namespace echelon
