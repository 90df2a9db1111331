#include "blueprint/documents/batch_documents.h"

#include "blueprint/balanced_batch.h"
#include "context/key_traffic.h"
#include "executor/model_part.h"

#include <algorithm>
#include <numeric>

namespace echelon {

TokenSplitKey split_key_of(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  return {static_cast<int>(p.context_parallel_degree), p.context_parallel_load_balancer, key_exchange(p).head_ranks};
}

BatchDocuments::BatchDocuments(const RunConfig& config, KnownPairs* known)
    : config_(config),
      known_(known),
      layout_(config),
      split_(token_split(config)),
      head_ranks_(key_exchange(config.parallelism).head_ranks),
      documents_(static_cast<std::size_t>(config.training.global_batch_size)),
      order_(documents_.size()),
      pairs_(first_of(layout_.num_replicas(), 0)),
      planned_(static_cast<std::size_t>(split_.cp)),
      of_window_(planned_.size()) {
  for (std::int64_t layer = 0; layer < config.model.num_hidden_layers; ++layer)
    ++layers_of_window_[config.model.window_of(layer)];
  count_sequence({0, static_cast<std::int32_t>(config.training.seq_len)}, planned_);
}

void BatchDocuments::read(const DocumentsOf& documents_of, std::int64_t first_sequence) {
  first_sequence_ = first_sequence;
  pairs_of_sequence_.clear();
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    documents_of(first_sequence + static_cast<std::int64_t>(i), documents_[i]);
    pairs_of_sequence_.push_back(num_pairs({documents_[i], split_.window}));
  }
  if (config_.data.balance_batch)
    order_ = balanced_order(layout_, pairs_of_sequence_);
  else
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
  std::fill(pairs_.begin(), pairs_.end(), 0);
  for (std::int64_t i = 0; i < std::ssize(order_); ++i) {
    const BatchPlace place = layout_.place_of(i);
    add_pairs(place, std::span(pairs_).subspan(first_of(place.replica, place.microbatch), planned_.size()));
  }
}

const DocumentOffsets& BatchDocuments::documents(const BatchPlace& place) const {
  return documents_[static_cast<std::size_t>(order_[static_cast<std::size_t>(layout_.sequence_at(place))])];
}

std::span<const std::int64_t> BatchDocuments::pairs(int replica, int microbatch) const {
  return std::span(pairs_).subspan(first_of(replica, microbatch), planned_.size());
}

std::size_t BatchDocuments::first_of(int replica, int microbatch) const {
  const std::int64_t place = std::int64_t{replica} * layout_.num_microbatches() + microbatch;
  return static_cast<std::size_t>(place * split_.cp);
}

void BatchDocuments::add_pairs(const BatchPlace& place, std::span<std::int64_t> sums) {
  if (known_ == nullptr) return count_sequence(documents(place), sums);
  auto& pairs = known_->of_ranks[{split_key_of(config_), sequence_at(place) % known_->num_sequences}];
  if (pairs.empty()) {
    pairs.resize(sums.size());
    count_sequence(documents(place), pairs);
  }
  for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += pairs[rank];
}

void BatchDocuments::count_sequence(const DocumentOffsets& documents, std::span<std::int64_t> sums) {
  lists_.assign(split_, documents);
  for (const auto& [window, num_layers] : layers_of_window_) {
    count_pairs(lists_, {documents, window}, of_window_);
    share_pairs(of_window_, head_ranks_);
    for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += num_layers * of_window_[rank];
  }
}

}  // namespace echelon
