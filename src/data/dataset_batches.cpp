#include "data/dataset_batches.h"

#include "base/error.h"
#include "data/permutation.h"
#include "tensor/tokens.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace echelon {

DatasetBatches::DatasetBatches(IndexedDataset dataset, BatchOrder order) : dataset_(std::move(dataset)), order_(order) {
  require(dataset_.num_tokens() >= 2, "{}.bin holds {} tokens; training needs at least 2", dataset_.prefix(),
          dataset_.num_tokens());
}

std::int64_t DatasetBatches::windows_per_epoch(std::int64_t seq_len) const {
  assert(seq_len >= 1);
  return (dataset_.num_tokens() - 2) / seq_len + 1;
}

std::int64_t DatasetBatches::first_token_of(std::int64_t sequence, std::int64_t seq_len) const {
  assert(sequence >= 0);
  const std::int64_t windows = windows_per_epoch(seq_len);
  std::int64_t window = sequence % windows;
  if (order_.order == WindowOrder::shuffled) {
    const std::uint64_t key =
        mix(static_cast<std::uint64_t>(order_.seed), static_cast<std::uint64_t>(sequence / windows));
    window = static_cast<std::int64_t>(
        permuted(static_cast<std::uint64_t>(window), static_cast<std::uint64_t>(windows), key));
  }
  return window * seq_len;
}

void DatasetBatches::read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens,
                          std::int32_t* targets) const {
  const std::int64_t first = first_token_of(sequence, seq_len);
  // Includes the last target; at least 2.
  const std::int64_t present = std::min(seq_len + 1, dataset_.num_tokens() - first);
  const std::int64_t predicted = present - 1;
  dataset_.read(first, {tokens, static_cast<std::size_t>(predicted)});
  dataset_.read(first + predicted, {targets + predicted - 1, 1});
  std::copy_n(tokens + 1, predicted - 1, targets);
  std::fill(tokens + predicted, tokens + seq_len, 0);
  std::fill(targets + predicted, targets + seq_len, ignored_target);
  if (order_.vocab_size == 0) return;
  for (std::int64_t t = 0; t < predicted; ++t) {
    const std::int32_t largest = std::max(tokens[t], targets[t]);
    require(largest < order_.vocab_size,
            "{}.bin holds token {}, but model.vocab_size = {}; the data was made with another tokenizer",
            dataset_.prefix(), largest, order_.vocab_size);
  }
}

void DatasetBatches::read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const {
  const std::int64_t first = first_token_of(sequence, seq_len), end = first + seq_len;
  std::int64_t document = dataset_.document_of(first);
  for (std::int64_t position = first; position < end; ++document) {
    // Padding of a short last window belongs to the last document.
    const std::int64_t next =
        document + 1 < dataset_.num_documents() ? std::min(dataset_.document_start(document + 1), end) : end;
    const std::int64_t start = std::max<std::int64_t>(0, dataset_.document_start(document) - first);
    std::fill(starts + (position - first), starts + (next - first), static_cast<std::int32_t>(start));
    position = next;
  }
}

}  // namespace echelon
