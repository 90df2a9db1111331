#include "train/data/attention_shares.h"

#include "blueprint/balanced_batch.h"
#include "context/key_traffic.h"
#include "executor/model_part.h"

#include <map>

namespace echelon {
namespace {

class ShareCounter {
 public:
  explicit ShareCounter(const RunConfig& config)
      : config_(config),
        layout_(config),
        split_(token_split(config)),
        head_ranks_(key_exchange(config.parallelism).head_ranks),
        pairs_(static_cast<std::size_t>(layout_.num_replicas()),
               std::vector<std::int64_t>(static_cast<std::size_t>(split_.cp))),
        starts_(static_cast<std::size_t>(config.training.seq_len)) {
    for (std::int64_t layer = 0; layer < config.model.num_hidden_layers; ++layer)
      ++layers_of_window_[config.model.window_of(layer)];
    planned_.resize(static_cast<std::size_t>(split_.cp));
    add_pairs({0, static_cast<std::int32_t>(config.training.seq_len)}, planned_);
  }

  void add_batch(const BatchSource& source, std::int64_t first_sequence) {
    const std::int64_t n = config_.training.global_batch_size;
    std::vector<DocumentOffsets> documents(static_cast<std::size_t>(n));
    std::vector<std::int64_t> pairs;
    for (std::int64_t i = 0; i < n; ++i) {
      DocumentOffsets& of_sequence = documents[static_cast<std::size_t>(i)];
      source.read_document_starts(first_sequence + i, config_.training.seq_len, starts_.data());
      find_documents(starts_, of_sequence);
      pairs.push_back(num_pairs({of_sequence, split_.window}));
    }
    const std::vector<std::int64_t> order =
        config_.data.balance_batch ? balanced_order(layout_, pairs) : std::vector<std::int64_t>();
    for (std::int64_t place = 0; place < n; ++place) {
      const std::int64_t sequence = order.empty() ? place : order[static_cast<std::size_t>(place)];
      add_pairs(documents[static_cast<std::size_t>(sequence)],
                pairs_[static_cast<std::size_t>(layout_.place_of(place).replica)]);
    }
    num_sequences_ += n / layout_.num_replicas();
  }

  [[nodiscard]] std::vector<double> shares() const {
    const MeshShape mesh = config_.mesh_shape();
    std::vector<double> shares;
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      const auto cp_rank = static_cast<std::size_t>(mesh.coordinate(rank, Axis::cp));
      const std::int64_t pairs = pairs_[static_cast<std::size_t>(layout_.replica_of(rank))][cp_rank];
      shares.push_back(static_cast<double>(pairs) / static_cast<double>(num_sequences_ * planned_[cp_rank]));
    }
    return shares;
  }

 private:
  /// Of all layers, to those of each rank of a cp group.
  void add_pairs(const DocumentOffsets& documents, std::vector<std::int64_t>& sums) {
    lists_.assign(split_, documents);
    std::vector<std::int64_t> pairs(sums.size());
    for (const auto& [window, num_layers] : layers_of_window_) {
      count_pairs(lists_, {documents, window}, pairs);
      share_pairs(pairs, head_ranks_);
      for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += num_layers * pairs[rank];
    }
  }

  const RunConfig& config_;
  BatchLayout layout_;
  TokenSplit split_;
  int head_ranks_;
  std::map<std::int64_t, std::int64_t> layers_of_window_;
  std::vector<std::int64_t> planned_;             // of a sequence, by rank of a cp group
  std::vector<std::vector<std::int64_t>> pairs_;  // by replica and rank of its cp group
  std::vector<std::int32_t> starts_;
  TokenLists lists_;
  std::int64_t num_sequences_ = 0;  // of a replica
};

}  // namespace

std::vector<double> attention_shares(const RunConfig& config, const BatchSource& source, std::int64_t num_batches) {
  ShareCounter counter(config);
  for (std::int64_t batch = 0; batch < num_batches; ++batch)
    counter.add_batch(source, batch * config.training.global_batch_size);
  return counter.shares();
}

}  // namespace echelon
