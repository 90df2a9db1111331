#include "data/dataset_batches.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "data/permutation.h"
#include "tensor/tokens.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace echelon {
namespace {

/// starts[first, seq_len)
void divide_padding(std::int64_t first, std::int64_t seq_len, std::int32_t* starts) {
  for (std::int64_t i = first; i < seq_len; ++i)
    starts[i] = static_cast<std::int32_t>(i - (i - first) % DatasetBatches::most_padding_together);
}

}  // namespace

DatasetBatches::DatasetBatches(IndexedDataset dataset, BatchOrder order, std::optional<PackedSequences> packed)
    : dataset_(std::move(dataset)), order_(order), packed_(std::move(packed)) {
  require(dataset_.num_tokens() >= 2, "{}.bin holds {}; training needs at least 2", dataset_.prefix(),
          counted(dataset_.num_tokens(), "token"));
  if (auto mask = LossMask::of(dataset_)) mask_ = std::make_shared<const LossMask>(*std::move(mask));
}

std::int64_t DatasetBatches::windows_per_epoch(std::int64_t seq_len) const {
  assert(seq_len >= 1);
  if (!packed_) return (dataset_.num_tokens() - 2) / seq_len + 1;
  require(packed_->seq_len == seq_len, "{} is packed for training.seq_len = {}, not {}", dataset_.prefix(),
          packed_->seq_len, seq_len);
  return packed_->num_sequences();
}

std::int64_t DatasetBatches::window_of(std::int64_t sequence, std::int64_t seq_len) const {
  assert(sequence >= 0);
  const std::int64_t windows = windows_per_epoch(seq_len), window = sequence % windows;
  if (order_.order == WindowOrder::in_order) return window;
  const std::uint64_t key =
      mix(static_cast<std::uint64_t>(order_.seed), static_cast<std::uint64_t>(sequence / windows));
  return static_cast<std::int64_t>(
      permuted(static_cast<std::uint64_t>(window), static_cast<std::uint64_t>(windows), key));
}

bool DatasetBatches::has_targets(std::int64_t seq_len) const {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq_len)), targets(tokens.size());
  for (std::int64_t window = 0; window < windows_per_epoch(seq_len); ++window) {
    read(window, seq_len, tokens.data(), targets.data());
    if (std::ranges::any_of(targets, [](std::int32_t target) { return target != ignored_target; })) return true;
  }
  return false;
}

std::int64_t DatasetBatches::num_targets() const {
  if (mask_) return count_targets();
  std::int64_t num_ignored = 1;
  if (order_.eod_mask_loss) {
    num_ignored = 0;
    for (std::int64_t d = 0; d < dataset_.num_documents(); ++d)
      num_ignored += dataset_.document_start(d) < dataset_.document_start(d + 1) ? 1 : 0;
  } else if (packed_) {
    num_ignored = 0;
    for (std::int64_t s = 0; s < packed_->num_sequences(); ++s)
      num_ignored += ends_document(packed_->piece(s, packed_->num_pieces(s) - 1)) ? 1 : 0;
  }
  return dataset_.num_tokens() - num_ignored;
}

/// By reading an epoch.
std::int64_t DatasetBatches::count_targets() const {
  const std::int64_t T = packed_ ? packed_->seq_len : 4096;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(T)), targets(tokens.size());
  std::int64_t num_targets = 0;
  for (std::int64_t window = 0; window < windows_per_epoch(T); ++window) {
    read(window, T, tokens.data(), targets.data());
    num_targets += T - std::count(targets.begin(), targets.end(), ignored_target);
  }
  return num_targets;
}

void DatasetBatches::read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens,
                          std::int32_t* targets) const {
  const std::int64_t window = window_of(sequence, seq_len);
  if (packed_)
    read_packed(window, seq_len, tokens, targets);
  else
    read_window(window * seq_len, seq_len, tokens, targets);
  if (order_.vocab_size > 0) require_in_vocabulary(seq_len, tokens, targets);
  if (mask_ && packed_) mask_packed(window, targets);
  if (mask_ && !packed_) mask_window(window * seq_len, seq_len, targets);
}

void DatasetBatches::read_window(std::int64_t first, std::int64_t seq_len, std::int32_t* tokens,
                                 std::int32_t* targets) const {
  // Includes the last target; at least 2.
  const std::int64_t present = std::min(seq_len + 1, dataset_.num_tokens() - first);
  const std::int64_t predicted = present - 1;
  dataset_.read(first, {tokens, static_cast<std::size_t>(predicted)});
  dataset_.read(first + predicted, {targets + predicted - 1, 1});
  std::copy_n(tokens + 1, predicted - 1, targets);
  std::fill(tokens + predicted, tokens + seq_len, 0);
  std::fill(targets + predicted, targets + seq_len, ignored_target);
  if (order_.eod_mask_loss) mask_ends(first, first + predicted, targets);
}

void DatasetBatches::mask_window(std::int64_t first, std::int64_t seq_len, std::int32_t* targets) const {
  for (std::int64_t i = 0; i < seq_len; ++i)
    if (targets[i] != ignored_target && !mask_->is_trained(first + i + 1)) targets[i] = ignored_target;
}

void DatasetBatches::mask_packed(std::int64_t window, std::int32_t* targets) const {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < packed_->num_pieces(window); ++i) {
    const DocumentPiece piece = packed_->piece(window, i);
    const bool leads_on = ends_document(piece) && i + 1 < packed_->num_pieces(window);
    for (std::int64_t j = 0; j < piece.length; ++j, ++at) {
      if (targets[at] == ignored_target) continue;
      const bool is_next_document = leads_on && j + 1 == piece.length;
      const std::int64_t target = is_next_document ? packed_->piece(window, i + 1).start : piece.start + j + 1;
      if (!mask_->is_trained(target)) targets[at] = ignored_target;
    }
  }
}

/// Of the tokens [first, end) of the stream.
void DatasetBatches::mask_ends(std::int64_t first, std::int64_t end, std::int32_t* targets) const {
  for (std::int64_t document = dataset_.document_of(first) + 1; document <= dataset_.num_documents(); ++document) {
    const std::int64_t last = dataset_.document_start(document) - 1;  // of the document before
    if (last >= end) return;
    targets[last - first] = ignored_target;
  }
}

void DatasetBatches::read_packed(std::int64_t window, std::int64_t seq_len, std::int32_t* tokens,
                                 std::int32_t* targets) const {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < packed_->num_pieces(window); ++i) {
    const DocumentPiece piece = packed_->piece(window, i);
    dataset_.read(piece.start, {tokens + at, static_cast<std::size_t>(piece.length)});
    const bool follows_document = at > 0 && targets[at - 1] == ignored_target;
    if (follows_document && !order_.eod_mask_loss) targets[at - 1] = tokens[at];
    std::copy_n(tokens + at + 1, piece.length - 1, targets + at);
    at += piece.length;
    targets[at - 1] = token_after(piece);
  }
  std::fill(tokens + at, tokens + seq_len, 0);
  std::fill(targets + at, targets + seq_len, ignored_target);
}

bool DatasetBatches::ends_document(const DocumentPiece& piece) const {
  return dataset_.document_start(dataset_.document_of(piece.start) + 1) == piece.start + piece.length;
}

/// Of the same document; ignored_target if the piece ends with it.
std::int32_t DatasetBatches::token_after(const DocumentPiece& piece) const {
  if (ends_document(piece)) return ignored_target;
  std::int32_t token = 0;
  dataset_.read(piece.start + piece.length, {&token, 1});
  return token;
}

void DatasetBatches::require_in_vocabulary(std::int64_t seq_len, const std::int32_t* tokens,
                                           const std::int32_t* targets) const {
  for (std::int64_t t = 0; t < seq_len; ++t) {
    const std::int32_t largest = std::max(tokens[t], targets[t]);
    require(largest < order_.vocab_size,
            "{}.bin holds token {}, but model.vocab_size = {}; the data was made with another tokenizer",
            dataset_.prefix(), largest, order_.vocab_size);
  }
}

void DatasetBatches::read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const {
  const std::int64_t window = window_of(sequence, seq_len);
  if (packed_) return read_packed_starts(window, seq_len, starts);
  const std::int64_t first = window * seq_len, end = first + seq_len;
  std::int64_t document = dataset_.document_of(first);
  for (std::int64_t position = first; position < end; ++document) {
    const std::int64_t next =
        document + 1 < dataset_.num_documents() ? std::min(dataset_.document_start(document + 1), end) : end;
    const std::int64_t start = std::max<std::int64_t>(0, dataset_.document_start(document) - first);
    std::fill(starts + (position - first), starts + (next - first), static_cast<std::int32_t>(start));
    position = next;
  }
  divide_padding(num_tokens(sequence, seq_len), seq_len, starts);
}

std::int64_t DatasetBatches::num_tokens(std::int64_t sequence, std::int64_t seq_len) const {
  const std::int64_t window = window_of(sequence, seq_len);
  if (!packed_) return std::min(seq_len, dataset_.num_tokens() - 1 - window * seq_len);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < packed_->num_pieces(window); ++i) sum += packed_->piece(window, i).length;
  return sum;
}

void DatasetBatches::read_packed_starts(std::int64_t window, std::int64_t seq_len, std::int32_t* starts) const {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < packed_->num_pieces(window); ++i) {
    std::fill_n(starts + at, packed_->piece(window, i).length, static_cast<std::int32_t>(at));
    at += packed_->piece(window, i).length;
  }
  divide_padding(at, seq_len, starts);
}

}  // namespace echelon
