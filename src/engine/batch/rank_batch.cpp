#include "engine/batch/rank_batch.h"

#include "context/key_ranges.h"
#include "tensor/tokens.h"

#include <algorithm>

namespace echelon {

RankBatch::RankBatch(const RunConfig& config, const ModelPart& model, int rank)
    : config_(&config), model_(&model), sequences_of_first_(BatchLayout(config).sequences_of(rank, 0)) {}

void RankBatch::make_room() {
  const auto resize = [&](std::vector<std::int32_t>& values, BufferRole role) {
    values.resize(static_cast<std::size_t>(config_->num_microbatches() * model_->batch_size(role)));
  };
  resize(tokens_, BufferRole::tokens);
  resize(targets_, BufferRole::targets);
  resize(key_begin_, BufferRole::key_begin);
  resize(key_end_, BufferRole::key_end);
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
  if (!key_begin_.empty()) write_begins(sequence, row);
}

// [microbatches, windows, B, T].
void RankBatch::write_begins(std::int64_t sequence, std::size_t row) {
  const std::vector<std::int64_t>& windows = model_->options.windows;
  const auto B = static_cast<std::size_t>(model_->options.num_sequences),
             T = static_cast<std::size_t>(config_->training.seq_len);
  starts_.assign(T, 0);
  if (model_->options.masks_documents)
    source_->read_document_starts(sequence, config_->training.seq_len, starts_.data());
  for (std::size_t w = 0; w < windows.size(); ++w) {
    std::int32_t* begins = key_begin_.data() + ((row / B * windows.size() + w) * B + row % B) * T;
    const auto window = static_cast<std::int32_t>(windows[w]);
    for (std::size_t i = 0; i < T; ++i)
      begins[i] = window == 0 ? starts_[i] : std::max(starts_[i], static_cast<std::int32_t>(i) - window + 1);
  }
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

  const auto num_rows = static_cast<std::size_t>(of_rank.lists.rows());
  const std::span<const std::int32_t> positions = of_rank.lists.positions(of_rank.rank);
  for (std::size_t i = 0; i < num_rows; ++i) {
    const bool is_padding = i >= positions.size();
    const auto position = static_cast<std::size_t>(is_padding ? 0 : positions[i]);
    tokens_[row * num_rows + i] = is_padding ? 0 : all_tokens_[position];
    targets_[row * num_rows + i] = is_padding ? ignored_target : all_targets_[position];
    if (!positions_.empty()) positions_[row * num_rows + i] = static_cast<std::int32_t>(position);
  }
  write_ranges(row);
}

// key_begin [microbatches, windows, cp, B, T], key_end [microbatches, cp, B, T]: a window moves no end.
void RankBatch::write_ranges(std::size_t row) {
  const RankTokens& of_rank = *model_->options.tokens;
  const std::vector<std::int64_t>& windows = model_->options.windows;
  const auto B = static_cast<std::size_t>(model_->options.num_sequences), cp = static_cast<std::size_t>(of_rank.cp),
             num_rows = static_cast<std::size_t>(of_rank.lists.rows()), microbatch = row / B;
  for (std::size_t w = 0; w < windows.size(); ++w)
    for (std::size_t source = 0; source < cp; ++source) {
      const auto rows_from = [&](std::vector<std::int32_t>& all, std::size_t block) {
        return std::span(all).subspan(((block + source) * B + row % B) * num_rows, num_rows);
      };
      write_key_ranges(
          {of_rank.lists.positions(of_rank.rank), of_rank.lists.positions(static_cast<int>(source))},
          {documents_, windows[w]},
          {rows_from(key_begin_, (microbatch * windows.size() + w) * cp), rows_from(key_end_, microbatch * cp)});
    }
}

HostBatch RankBatch::values() const {
  return {tokens_.data(), targets_.data(), key_begin_.data(), key_end_.data(), positions_.data()};
}

std::int64_t RankBatch::num_targets() const {
  return std::ssize(targets_) - std::count(targets_.begin(), targets_.end(), ignored_target);
}

}  // namespace echelon
