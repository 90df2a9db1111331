// The documents of a global batch where they are computed, and the pairs (query, key) that they leave to every rank.
#pragma once

#include "blueprint/batch_layout.h"
#include "context/documents.h"
#include "context/token_lists.h"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace echelon {

/// Overwrites `documents` with those of a sequence of the data.
using DocumentsOf = std::function<void(std::int64_t sequence, DocumentOffsets& documents)>;

/// How the tokens of a sequence are distributed, as far as pairs and rows of keys depend on it: cp, the balancer, ranks
/// that exchange heads.
using TokenSplitKey = std::tuple<int, LoadBalancer, int>;
[[nodiscard]] TokenSplitKey split_key_of(const RunConfig& config);

/// Pairs of sequences that were counted, for configs of one model and sequence length. After `num_sequences` the
/// sequences repeat.
struct KnownPairs {
  std::int64_t num_sequences = 1;
  std::map<std::pair<TokenSplitKey, std::int64_t>, std::vector<std::int64_t>> of_ranks = {};
};

class BatchDocuments {
 public:
  /// `config` and `known`, if there is one, outlive it.
  explicit BatchDocuments(const RunConfig& config, KnownPairs* known = nullptr);

  /// The global batch that starts with `first_sequence`, in the order of data.balance_batch.
  void read(const DocumentsOf& documents_of, std::int64_t first_sequence);

  [[nodiscard]] const BatchLayout& layout() const { return layout_; }
  [[nodiscard]] const TokenSplit& split() const { return split_; }
  [[nodiscard]] const DocumentOffsets& documents(const BatchPlace& place) const;
  /// Of the data.
  [[nodiscard]] std::int64_t sequence_at(const BatchPlace& place) const {
    return first_sequence_ + order_[static_cast<std::size_t>(layout_.sequence_at(place))];
  }

  /// Of one head and all layers, whose windows may differ: int64 [cp], by rank of the replica's cp group.
  [[nodiscard]] std::span<const std::int64_t> pairs(int replica, int microbatch) const;
  /// Likewise those that a plan counts for one sequence.
  [[nodiscard]] std::span<const std::int64_t> planned_pairs() const { return planned_; }

 private:
  void count_sequence(const DocumentOffsets& documents, std::span<std::int64_t> sums);
  void add_pairs(const BatchPlace& place, std::span<std::int64_t> sums);
  [[nodiscard]] std::size_t first_of(int replica, int microbatch) const;

  const RunConfig& config_;
  KnownPairs* known_;
  std::int64_t first_sequence_ = 0;
  BatchLayout layout_;
  TokenSplit split_;
  int head_ranks_;
  std::map<std::int64_t, std::int64_t> layers_of_window_;
  std::vector<DocumentOffsets> documents_;  // by sequence of the batch
  std::vector<std::int64_t> order_;         // the sequence at each place
  std::vector<std::int64_t> pairs_;         // [replicas, microbatches, cp]
  std::vector<std::int64_t> planned_, pairs_of_sequence_, of_window_;
  TokenLists lists_;
};

}  // namespace echelon
