#include "verify/context/token_places.h"

#include "executor/model_part.h"

#include <algorithm>

namespace echelon {

TokenPlaces::TokenPlaces(const RunConfig& config, const BatchSource& batches, std::int64_t step)
    : config_(config),
      layout_(config),
      mesh_(config.mesh_shape()),
      step_(step),
      seq_len_(config.training.seq_len),
      rows_(config.parallelism.context_parallel_degree == 1 ? seq_len_ : rows_per_rank(token_split(config))),
      cp_(mesh_.degree(Axis::cp)) {
  split_sequences(batches);
}

void TokenPlaces::split_sequences(const BatchSource& batches) {
  const TokenSplit split = token_split(config_);
  const std::int64_t num_sequences = config_.training.global_batch_size;
  std::vector<std::int32_t> starts(static_cast<std::size_t>(seq_len_));
  parts_.resize(static_cast<std::size_t>(num_sequences * seq_len_));
  if (config_.data.reset_position_ids) ids_.resize(parts_.size());
  for (std::int64_t sequence = 0; sequence < num_sequences; ++sequence) {
    documents_.push_back({0, static_cast<std::int32_t>(seq_len_)});
    if (config_.data.reset_attention_mask) {
      batches.read_document_starts((step_ - 1) * num_sequences + sequence, seq_len_, starts.data());
      find_documents(starts, documents_.back());
    }
    if (!ids_.empty())
      batches.read_positions((step_ - 1) * num_sequences + sequence, seq_len_, ids_.data() + sequence * seq_len_);
    if (cp_ == 1) continue;
    if (lists_.empty() || reads_documents(split.balancer)) lists_.emplace_back().assign(split, documents_.back());
    for (int part = 0; part < cp_; ++part)
      for (const std::int32_t position : positions(sequence, part))
        parts_[static_cast<std::size_t>(sequence * seq_len_ + position)] = part;
  }
}

BlockPlace TokenPlaces::place_of(int rank, int microbatch) const {
  return {.replica = layout_.replica_of(rank), .microbatch = microbatch, .cp_rank = mesh_.coordinate(rank, Axis::cp)};
}

std::vector<std::int64_t> TokenPlaces::tokens_of(const BlockPlace& block) const {
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < config_.training.micro_batch_size; ++row) {
    const std::int64_t sequence = layout_.sequence_at({block.replica, block.microbatch, row}),
                       first = sequence * seq_len_;
    const std::size_t end = tokens.size() + static_cast<std::size_t>(rows_);
    if (cp_ == 1)
      for (std::int64_t position = 0; position < seq_len_; ++position) tokens.push_back(first + position);
    else
      for (const std::int32_t position : positions(sequence, block.cp_rank)) tokens.push_back(first + position);
    tokens.resize(end, no_token);
  }
  return tokens;
}

std::span<const std::int32_t> TokenPlaces::positions(std::int64_t sequence, int cp_rank) const {
  return lists_[lists_.size() == 1 ? 0 : static_cast<std::size_t>(sequence)].positions(cp_rank);
}

// The start of a token's document is the last offset that is not after it.
RowRange TokenPlaces::keys_seen_by(std::int64_t token, int cp_rank, const Visibility& visibility) const {
  const auto position = static_cast<std::int32_t>(token % seq_len_);
  std::int32_t start = *std::prev(std::ranges::upper_bound(visibility.documents, position));
  if (visibility.window > 0) start = std::max(start, position - static_cast<std::int32_t>(visibility.window) + 1);
  const std::span<const std::int32_t> keys = positions(token / seq_len_, cp_rank);
  const RowRange range = {std::ranges::lower_bound(keys, start) - keys.begin(),
                          std::ranges::upper_bound(keys, position) - keys.begin()};
  return range.begin < range.end ? range : RowRange{};
}

}  // namespace echelon
