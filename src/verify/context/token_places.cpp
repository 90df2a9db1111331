#include "verify/context/token_places.h"

#include "executor/model_part.h"

#include <algorithm>

namespace echelon {

namespace {

/// One rank has whole sequences.
TokenSplit split_of(const RunConfig& config) {
  if (config.parallelism.context_parallel_degree > 1) return token_split(config);
  return {.seq_len = config.training.seq_len, .cp = 1, .balancer = LoadBalancer::none};
}

}  // namespace

TokenPlaces::TokenPlaces(const RunConfig& config, const BatchSource& batches, std::int64_t step)
    : config_(config),
      layout_(config),
      mesh_(config.mesh_shape()),
      step_(step),
      seq_len_(config.training.seq_len),
      rows_(rows_per_rank(split_of(config))),
      cp_(mesh_.degree(Axis::cp)),
      exchange_(key_exchange(config.parallelism)) {
  split_sequences(batches);
}

void TokenPlaces::split_sequences(const BatchSource& batches) {
  const TokenSplit split = split_of(config_);
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
    if (lists_.empty() || reads_documents(split.balancer)) add_lists(split, documents_.back());
    for (int part = 0; part < cp_; ++part)
      for (const std::int32_t position : positions(sequence, part))
        parts_[static_cast<std::size_t>(sequence * seq_len_ + position)] = part;
  }
}

void TokenPlaces::add_lists(const TokenSplit& split, const DocumentOffsets& documents) {
  lists_.emplace_back().assign(split, documents);
  for (int rank = 0; rank < cp_; rank += exchange_.head_ranks)
    blocks_.emplace_back().assign(split, lists_.back(), exchange_, rank);
}

BlockPlace TokenPlaces::place_of(int rank, int microbatch) const {
  return {.replica = layout_.replica_of(rank), .microbatch = microbatch, .cp_rank = mesh_.coordinate(rank, Axis::cp)};
}

std::vector<std::int64_t> TokenPlaces::tokens_of(const BlockPlace& block) const {
  return tokens_at(block, rows_, [&](std::int64_t sequence) { return positions(sequence, block.cp_rank); });
}

std::vector<std::int64_t> TokenPlaces::queries_of(const BlockPlace& block) const {
  return tokens_at(block, blocks_.front().num_query_rows(),
                   [&](std::int64_t sequence) { return queries(sequence, block.cp_rank); });
}

std::vector<std::int64_t> TokenPlaces::keys_of(const BlockPlace& block, int key_block) const {
  return tokens_at(block, ranks_of_block() == 1 ? rows_ : blocks_.front().num_gathered_rows(),
                   [&](std::int64_t sequence) { return keys(sequence, key_block); });
}

std::vector<std::int64_t> TokenPlaces::tokens_at(const BlockPlace& block, std::int64_t rows,
                                                 const PositionsOf& positions_of) const {
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < config_.training.micro_batch_size; ++row) {
    const std::int64_t sequence = layout_.sequence_at({block.replica, block.microbatch, row});
    const std::size_t end = tokens.size() + static_cast<std::size_t>(rows);
    for (const std::int32_t position : positions_of(sequence)) tokens.push_back(sequence * seq_len_ + position);
    tokens.resize(end, no_token);
  }
  return tokens;
}

std::span<const std::int32_t> TokenPlaces::positions(std::int64_t sequence, int cp_rank) const {
  return lists_[list_of(sequence)].positions(cp_rank);
}

std::span<const std::int32_t> TokenPlaces::queries(std::int64_t sequence, int cp_rank) const {
  const std::size_t num_groups = blocks_.size() / lists_.size();
  return blocks_[list_of(sequence) * num_groups + static_cast<std::size_t>(cp_rank / exchange_.head_ranks)].queries();
}

std::span<const std::int32_t> TokenPlaces::keys(std::int64_t sequence, int block) const {
  const std::size_t list = list_of(sequence), num_groups = blocks_.size() / lists_.size();
  return blocks_[list * num_groups].keys(lists_[list], block);
}

std::int64_t TokenPlaces::row_of(std::int64_t token) const {
  const auto rows = positions(token / seq_len_, part_of(token));
  return std::ranges::lower_bound(rows, static_cast<std::int32_t>(token % seq_len_)) - rows.begin();
}

// The start of a token's document is the last offset that is not after it.
RowRange TokenPlaces::seen(std::int64_t token, std::span<const std::int32_t> keys, const Visibility& visibility) const {
  const auto position = static_cast<std::int32_t>(token % seq_len_);
  std::int32_t start = *std::prev(std::ranges::upper_bound(visibility.documents, position));
  if (visibility.window > 0) start = std::max(start, position - static_cast<std::int32_t>(visibility.window) + 1);
  const RowRange range = {std::ranges::lower_bound(keys, start) - keys.begin(),
                          std::ranges::upper_bound(keys, position) - keys.begin()};
  return range.begin < range.end ? range : RowRange{};
}

}  // namespace echelon
