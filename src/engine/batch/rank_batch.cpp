#include "engine/batch/rank_batch.h"

#include "context/key_ranges.h"
#include "tensor/tokens.h"

#include <algorithm>

namespace echelon {

RankBatch::RankBatch(const RunConfig& config, const ModelPart& model, int rank)
    : config_(&config), model_(&model), sequences_of_first_(BatchLayout(config).sequences_of(rank, 0)) {
  const RankTokens* of_rank = model.options.tokens.get();
  if (of_rank == nullptr) return;
  auto lists = std::make_shared<Lists>();
  lists->of_ranks.assign(of_rank->split);
  lists->blocks.assign(of_rank->split, lists->of_ranks, of_rank->exchange, of_rank->rank);
  lists_ = std::move(lists);
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
}

void RankBatch::read(const BatchSource& source, std::int64_t first_sequence) {
  const bool is_whole = model_->options.tokens == nullptr;
  make_room();
  source_ = &source;
  first_sequence_ = first_sequence;
  try {
    for (std::size_t row = 0; row < sequences_of_first_.size(); ++row)
      is_whole ? read_whole(first_sequence + sequences_of_first_[row], row)
               : read_part(first_sequence + sequences_of_first_[row], row);
  } catch (...) {
    release();
    throw;
  }
}

void RankBatch::read_whole(std::int64_t sequence, std::size_t row) {
  const std::int64_t T = config_->training.seq_len;
  const auto at = static_cast<std::ptrdiff_t>(row) * T;
  source_->read(sequence, T, tokens_.data() + at, targets_.data() + at);
  if (!key_begin_.empty()) source_->read_document_starts(sequence, T, key_begin_.data() + at);
}

void RankBatch::read_part(std::int64_t sequence, std::size_t row) {
  const std::int64_t T = config_->training.seq_len;
  const RankTokens& of_rank = *model_->options.tokens;
  all_tokens_.resize(static_cast<std::size_t>(T));
  all_targets_.resize(static_cast<std::size_t>(T));
  source_->read(sequence, T, all_tokens_.data(), all_targets_.data());
  documents_ = {0, static_cast<std::int32_t>(T)};
  if (model_->options.masks_documents) {
    starts_.resize(static_cast<std::size_t>(T));
    source_->read_document_starts(sequence, T, starts_.data());
    find_documents(starts_, documents_);
  }

  const auto num_rows = static_cast<std::size_t>(of_rank.rows);
  const std::span<const std::int32_t> positions = lists_->of_ranks.positions(of_rank.rank);
  for (std::size_t i = 0; i < num_rows; ++i) {
    const bool is_padding = i >= positions.size();
    const auto position = static_cast<std::size_t>(is_padding ? 0 : positions[i]);
    tokens_[row * num_rows + i] = is_padding ? 0 : all_tokens_[position];
    targets_[row * num_rows + i] = is_padding ? ignored_target : all_targets_[position];
    if (!positions_.empty()) positions_[row * num_rows + i] = static_cast<std::int32_t>(position);
  }
  write_ranges(row);
  write_order(row);
}

// [microbatches, blocks, B, queries].
void RankBatch::write_ranges(std::size_t row) {
  if (key_begin_.empty()) return;
  const KeyBlocks& blocks = lists_->blocks;
  const auto B = static_cast<std::size_t>(model_->options.num_sequences),
             num_blocks = static_cast<std::size_t>(blocks.num_blocks()),
             num_rows = static_cast<std::size_t>(blocks.num_query_rows());
  ends_.resize(num_rows);
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const std::size_t at = ((row / B * num_blocks + block) * B + row % B) * num_rows;
    write_key_ranges({blocks.queries(), blocks.keys(static_cast<int>(block))}, {documents_},
                     {std::span(key_begin_).subspan(at, num_rows),
                      key_end_.empty() ? std::span(ends_) : std::span(key_end_).subspan(at, num_rows)});
  }
}

// [microbatches, B, rows] and [microbatches, ranks, B, T].
void RankBatch::write_order(std::size_t row) {
  const RankTokens& of_rank = *model_->options.tokens;
  const KeyBlocks& blocks = lists_->blocks;
  const auto num_sequences = static_cast<std::size_t>(model_->options.num_sequences), b = row % num_sequences;
  const auto B = static_cast<std::int32_t>(num_sequences), T = static_cast<std::int32_t>(of_rank.rows);
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
  return {tokens_.data(),           targets_.data(),      key_begin_.data(), key_end_.data(),
          rows_by_position_.data(), rows_by_rank_.data(), positions_.data()};
}

std::int64_t RankBatch::num_targets() const {
  return std::ssize(targets_) - std::count(targets_.begin(), targets_.end(), ignored_target);
}

}  // namespace echelon
