#include "engine/batch/rank_batch.h"

#include "blueprint/balanced_batch.h"
#include "context/key_ranges.h"
#include "context/key_traffic.h"
#include "engine/batch/mask_shape.h"
#include "tensor/tokens.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

bool has_documents(const RunConfig& config) {
  return config.data.reset_attention_mask || config.data.reset_position_ids;
}

}  // namespace

RankBatch::RankBatch(const RunConfig& config, const ModelPart& model, int rank)
    : config_(&config),
      model_(&model),
      layout_(config),
      rank_(rank),
      whole_{0, static_cast<std::int32_t>(config.training.seq_len)},
      pairs_(model, config.training.seq_len) {
  const RankTokens* of_rank = model.options.tokens.get();
  if (of_rank == nullptr || reads_documents(of_rank->split.balancer)) return;
  auto lists = std::make_shared<Lists>();
  lists->assign(*of_rank, whole_);
  lists_of_all_ = std::move(lists);
}

void RankBatch::Lists::assign(const RankTokens& of_rank, const DocumentOffsets& documents) {
  of_ranks.assign(of_rank.split, documents);
  blocks.assign(of_rank.split, of_ranks, of_rank.exchange, of_rank.rank);
}

void RankBatch::make_room() {
  const auto resize = [&](std::vector<std::int32_t>& values, BufferRole role) {
    values.resize(static_cast<std::size_t>(config_->num_microbatches() * model_->batch_size(role)));
  };
  resize(tokens_, BufferRole::tokens);
  resize(targets_, BufferRole::targets);
  resize(key_begin_, BufferRole::key_begin);
  resize(key_end_, BufferRole::key_end);
  resize(rows_by_position_, BufferRole::rows_by_position);
  resize(rows_by_rank_, BufferRole::rows_by_rank);
  resize(positions_, BufferRole::positions);
  resize(places_, BufferRole::places);
  mask_shapes_.assign(static_cast<std::size_t>(config_->num_microbatches() * model_->num_key_ranges()), {});
  if (!model_->options.tokens || has_documents(*config_))
    starts_.resize(static_cast<std::size_t>(config_->training.seq_len));
  key_transfers_.resize(model_->options.skips_unseen_keys
                            ? static_cast<std::size_t>(config_->num_microbatches() * model_->options.num_sequences) *
                                  model_->options.windows.size()
                            : 0);
  pairs_.clear();
  pairs_of_sequence_.clear();
  pairs_of_replicas_.assign(static_cast<std::size_t>(layout_.num_replicas()), 0);
  const RankTokens* of_rank = model_->options.tokens.get();
  pairs_of_cp_ranks_.assign(of_rank ? static_cast<std::size_t>(of_rank->cp / of_rank->exchange.head_ranks) : 0, 0);
}

void RankBatch::read(const BatchSource& source, std::int64_t first_sequence) {
  make_room();
  source_ = &source;
  first_sequence_ = first_sequence;
  try {
    arrange();
    for (std::size_t row = 0; row < sequences_.size(); ++row) {
      find_documents_of(sequences_[row]);
      pairs_.add_sequence();
      model_->options.tokens ? read_part(sequences_[row], row) : read_whole(sequences_[row], row);
    }
  } catch (...) {
    release();
    throw;
  }
}

void RankBatch::arrange() {
  sequences_ = layout_.sequences_of(rank_, 0);
  if (config_->data.balance_batch || counts_replicas()) {
    for (std::int64_t sequence = 0; sequence < config_->training.global_batch_size; ++sequence) {
      find_documents_of(first_sequence_ + sequence);
      pairs_of_sequence_.push_back(num_pairs(visibility(window_of_all(*config_))));
    }
    std::vector<std::int64_t> order(pairs_of_sequence_.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (config_->data.balance_batch) order = balanced_order(layout_, pairs_of_sequence_);
    for (std::size_t place = 0; place < order.size(); ++place)
      pairs_of_replicas_[static_cast<std::size_t>(layout_.place_of(static_cast<std::int64_t>(place)).replica)] +=
          pairs_of_sequence_[static_cast<std::size_t>(order[place])];
    for (std::int64_t& sequence : sequences_) sequence = order[static_cast<std::size_t>(sequence)];
  }
  for (std::int64_t& sequence : sequences_) sequence += first_sequence_;
}

void RankBatch::find_documents_of(std::int64_t sequence) {
  if (!has_documents(*config_)) return;
  source_->read_document_starts(sequence, config_->training.seq_len, starts_.data());
  find_documents(starts_, documents_);
}

Visibility RankBatch::visibility(std::int64_t window) const {
  return {.documents = model_->options.masks_documents ? documents_ : whole_, .window = window};
}

void RankBatch::read_whole(std::int64_t sequence, std::size_t row) {
  const std::int64_t T = config_->training.seq_len;
  const auto at = static_cast<std::ptrdiff_t>(row) * T;
  source_->read(sequence, T, tokens_.data() + at, targets_.data() + at);
  if (!key_begin_.empty()) write_begins(row);
  const std::vector<std::int64_t>& windows = model_->options.windows;
  for (std::size_t w = 0; w < windows.size(); ++w) pairs_.add(w, num_pairs(visibility(windows[w])));
  for (std::int64_t i = 0; i < T && !positions_.empty(); ++i)
    positions_[static_cast<std::size_t>(at + i)] = static_cast<std::int32_t>(i) - starts_[static_cast<std::size_t>(i)];
  const std::int64_t num_tokens = places_.empty() ? T : source_->num_tokens(sequence, T);
  for (std::int64_t i = 0; i < T && !places_.empty(); ++i)
    places_[static_cast<std::size_t>(at + i)] = i < num_tokens ? place_of(i, row) : 0;
}

// Microbatch::places.
std::int32_t RankBatch::place_of(std::int64_t position, std::size_t row) const {
  const std::int64_t in_microbatch = static_cast<std::int64_t>(row) % model_->options.num_sequences;
  return static_cast<std::int32_t>(1 + in_microbatch * config_->training.seq_len + position);
}

// [microbatches, windows, B, T].
void RankBatch::write_begins(std::size_t row) {
  const std::vector<std::int64_t>& windows = model_->options.windows;
  const auto B = static_cast<std::size_t>(model_->options.num_sequences),
             T = static_cast<std::size_t>(config_->training.seq_len);
  for (std::size_t w = 0; w < windows.size(); ++w) {
    std::int32_t* begins = key_begin_.data() + ((row / B * windows.size() + w) * B + row % B) * T;
    const auto window = static_cast<std::int32_t>(windows[w]);
    for (std::size_t i = 0; i < T; ++i) {
      const std::int32_t start = model_->options.masks_documents ? starts_[i] : 0;
      begins[i] = window == 0 ? start : std::max(start, static_cast<std::int32_t>(i) - window + 1);
    }
    if (window == 0) write_shape(row, w, {.kind = MaskShape::Kind::causal, .end_key = config_->training.seq_len});
  }
}

void RankBatch::read_part(std::int64_t sequence, std::size_t row) {
  const RankTokens& of_rank = *model_->options.tokens;
  // Given back at once: every rank of a process reads whole sequences.
  std::vector<std::int32_t> all_tokens(static_cast<std::size_t>(config_->training.seq_len)), all_targets = all_tokens;
  source_->read(sequence, config_->training.seq_len, all_tokens.data(), all_targets.data());
  if (!lists_of_all_) lists_.assign(of_rank, documents_);
  const Lists& lists = lists_of_all_ ? *lists_of_all_ : lists_;

  const std::int64_t num_tokens = places_.empty() ? 0 : source_->num_tokens(sequence, config_->training.seq_len);
  const auto num_rows = static_cast<std::size_t>(of_rank.rows);
  const std::span<const std::int32_t> positions = lists.of_ranks.positions(of_rank.rank);
  for (std::size_t i = 0; i < num_rows; ++i) {
    const bool is_padding = i >= positions.size();
    const auto position = static_cast<std::size_t>(is_padding ? 0 : positions[i]);
    tokens_[row * num_rows + i] = is_padding ? 0 : all_tokens[position];
    targets_[row * num_rows + i] = is_padding ? ignored_target : all_targets[position];
    if (!places_.empty())
      places_[row * num_rows + i] = !is_padding && static_cast<std::int64_t>(position) < num_tokens
                                        ? place_of(static_cast<std::int64_t>(position), row)
                                        : 0;
  }
  if (!positions_.empty()) write_positions(positions, row);
  write_ranges(lists.of_ranks, lists.blocks, row);
  write_order(lists.blocks, row);
  if (!key_transfers_.empty()) write_transfers(lists, row);
  add_pairs(lists.of_ranks);
}

KeyTransfers& RankBatch::transfers_at(std::size_t row, std::size_t window) {
  const auto B = static_cast<std::size_t>(model_->options.num_sequences);
  return key_transfers_[(row / B * model_->options.windows.size() + window) * B + row % B];
}

// By LayerOptions::windows: a block sends what its own queries see. Without documents that holds for every batch.
void RankBatch::write_transfers(const Lists& lists, std::size_t row) {
  if (lists_of_all_ && !model_->options.masks_documents && transfers_at(row, 0).is_assigned()) return;
  const RankTokens& of_rank = *model_->options.tokens;
  const std::vector<std::int64_t>& windows = model_->options.windows;
  for (std::size_t w = 0; w < windows.size(); ++w)
    transfers_at(row, w).assign(lists.of_ranks, lists.blocks, of_rank.exchange, of_rank.rank, visibility(windows[w]));
}

// Ranks that exchange heads have the same queries.
void RankBatch::add_pairs(const TokenLists& lists) {
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(lists.cp()));
  count_pairs(lists, visibility(model_->options.tokens->split.window), pairs);
  const std::size_t head_ranks = pairs.size() / pairs_of_cp_ranks_.size();
  for (std::size_t rank = 0; rank < pairs.size(); ++rank) pairs_of_cp_ranks_[rank / head_ranks] += pairs[rank];
}

// In the sequence, or in their documents.
void RankBatch::write_positions(std::span<const std::int32_t> tokens, std::size_t row) {
  const auto num_rows = positions_.size() / sequences_.size();
  write_document_positions(tokens, config_->data.reset_position_ids ? documents_ : whole_,
                           std::span(positions_).subspan(row * num_rows, num_rows));
}

// key_begin [microbatches, windows, blocks, B, queries], key_end without windows: a window moves no end.
void RankBatch::write_ranges(const TokenLists& of_ranks, const KeyBlocks& blocks, std::size_t row) {
  if (key_begin_.empty()) return;
  const std::vector<std::int64_t>& windows = model_->options.windows;
  const auto B = static_cast<std::size_t>(model_->options.num_sequences),
             num_blocks = static_cast<std::size_t>(blocks.num_blocks()),
             num_rows = static_cast<std::size_t>(blocks.num_query_rows()), microbatch = row / B;
  ends_.resize(num_rows);
  for (std::size_t w = 0; w < windows.size(); ++w)
    for (std::size_t block = 0; block < num_blocks; ++block) {
      const auto rows_from = [&](std::vector<std::int32_t>& all, std::size_t first_block) {
        return std::span(all).subspan(((first_block + block) * B + row % B) * num_rows, num_rows);
      };
      const KeyRanges ranges = {rows_from(key_begin_, (microbatch * windows.size() + w) * num_blocks),
                                key_end_.empty() ? std::span(ends_) : rows_from(key_end_, microbatch * num_blocks)};
      write_key_ranges({blocks.queries(), blocks.keys(of_ranks, static_cast<int>(block))}, visibility(windows[w]),
                       ranges);
      pairs_.add(w, num_pairs(ranges.begin, ranges.end));
      write_shape(row, w * num_blocks + block, mask_shape_of(ranges.begin, ranges.end));
    }
}

// [microbatches, windows, blocks]. Of documents, sequences without a boundary alone have shapes, which are those of
// every such sequence: other boundaries would ask for kernels that nothing warmed up. A graph repeats the kernels of
// the batch that it was captured with, so with graphs the shapes of masked documents stay unknown.
void RankBatch::write_shape(std::size_t row, std::size_t ranges, const MaskShape& shape) {
  const bool is_known = !model_->options.masks_documents || (!config_->training.cuda_graphs && documents_ == whole_);
  const auto B = static_cast<std::size_t>(model_->options.num_sequences),
             num_ranges = static_cast<std::size_t>(model_->num_key_ranges());
  MaskShape& of_all = mask_shapes_[row / B * num_ranges + ranges];
  const bool agrees = row % B == 0 || of_all == shape;
  of_all = is_known && agrees ? shape : MaskShape();
}

// [microbatches, B, rows] and [microbatches, ranks, B, T].
void RankBatch::write_order(const KeyBlocks& blocks, std::size_t row) {
  const auto num_sequences = static_cast<std::size_t>(model_->options.num_sequences), b = row % num_sequences;
  const auto B = static_cast<std::int32_t>(num_sequences), T = static_cast<std::int32_t>(model_->options.seq_len);
  const auto num_rows = static_cast<std::size_t>(blocks.num_gathered_rows());
  for (std::size_t i = 0; i < num_rows; ++i) {
    const std::int32_t of_ranks = blocks.by_position()[i];
    rows_by_position_[row * num_rows + i] =
        of_ranks < 0 ? -1 : (of_ranks / T * B + static_cast<std::int32_t>(b)) * T + of_ranks % T;
  }
  const std::span<const std::int32_t> by_rank = blocks.by_rank();
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    const std::size_t rank = i / static_cast<std::size_t>(T), of_rank_row = i % static_cast<std::size_t>(T);
    const std::size_t at = row / num_sequences * num_sequences * by_rank.size() +
                           (rank * num_sequences + b) * static_cast<std::size_t>(T) + of_rank_row;
    rows_by_rank_[at] = by_rank[i] < 0 ? -1 : static_cast<std::int32_t>(b * num_rows) + by_rank[i];
  }
}

HostBatch RankBatch::values() const {
  return {.tokens = tokens_.data(),
          .targets = targets_.data(),
          .key_begin = key_begin_.data(),
          .key_end = key_end_.data(),
          .mask_shapes = mask_shapes_.data(),
          .rows_by_position = rows_by_position_.data(),
          .rows_by_rank = rows_by_rank_.data(),
          .positions = positions_.data(),
          .places = places_.data(),
          .key_transfers = key_transfers_.empty() ? nullptr : key_transfers_.data()};
}

std::int64_t RankBatch::num_targets() const {
  return std::ssize(targets_) - std::count(targets_.begin(), targets_.end(), ignored_target);
}

PairShares RankBatch::pair_shares() const {
  PairShares shares;
  if (model_->options.masks_documents) {
    std::int64_t pairs = pairs_.num_pairs(), planned = pairs_.num_planned_pairs();
    if (const auto& of_rank = model_->options.tokens) {  // of all ranks, in layers without windows of their own
      pairs = std::accumulate(pairs_of_cp_ranks_.begin(), pairs_of_cp_ranks_.end(), std::int64_t{0});
      planned = std::ssize(sequences_) * num_document_pairs(config_->training.seq_len, of_rank->split.window);
    }
    if (planned > 0) shares.of_whole = static_cast<double>(pairs) / static_cast<double>(planned);
    if (pairs_of_cp_ranks_.size() > 1) shares.of_cp_ranks = largest_over_mean(pairs_of_cp_ranks_);
  }
  if (counts_replicas()) shares.of_replicas = largest_over_mean(pairs_of_replicas_);
  return shares;
}

std::vector<KeyRowCounts> RankBatch::key_row_counts() const {
  std::vector<KeyRowCounts> counts(key_transfers_.empty() ? 0 : model_->options.windows.size());
  for (std::size_t i = 0; i < key_transfers_.size(); ++i) {
    KeyRowCounts& of_window = counts[i / static_cast<std::size_t>(model_->options.num_sequences) % counts.size()];
    of_window.keys += key_transfers_[i].num_keys_sent();
    of_window.gradients += key_transfers_[i].num_gradients_sent();
  }
  return counts;
}

}  // namespace echelon
