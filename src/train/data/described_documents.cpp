#include "train/data/described_documents.h"

#include "base/error.h"
#include "data/dataset_batches.h"

#include <algorithm>
#include <memory>

namespace echelon {
namespace {

void add_end(DocumentOffsets& documents, std::int64_t end) {
  if (end > documents.back()) documents.push_back(static_cast<std::int32_t>(end));
}

/// Window `window` of the stream.
void read_window(std::span<const std::int64_t> starts, std::int64_t seq_len, std::int64_t window,
                 DocumentOffsets& documents) {
  const std::int64_t first = window * seq_len;
  documents.assign(1, 0);
  for (auto next = std::ranges::upper_bound(starts, first); next != starts.end() && *next < first + seq_len; ++next)
    add_end(documents, *next - first);
  add_end(documents, seq_len);
}

void read_packed(const PackedSequences& packed, std::int64_t sequence, DocumentOffsets& documents) {
  documents.assign(1, 0);
  for (std::int64_t i = 0; i < packed.num_pieces(sequence); ++i)
    documents.push_back(documents.back() + packed.piece(sequence, i).length);
  while (documents.back() < packed.seq_len)
    add_end(documents, std::min(packed.seq_len, documents.back() + DatasetBatches::most_padding_together));
}

}  // namespace

DocumentsOf described_documents(const RunConfig& config, std::span<const std::int64_t> lengths) {
  const std::int64_t T = config.training.seq_len;
  std::vector<std::int64_t> starts = {0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  require(starts.back() >= T, "--documents has {} tokens, fewer than a sequence of {} (use more)", starts.back(), T);
  if (config.data.packing == Packing::best_fit) {
    const auto packed = std::make_shared<const PackedSequences>(
        pack_best_fit({.document_starts = starts, .seq_len = T, .seed = config.data.seed}));
    return [packed](std::int64_t sequence, DocumentOffsets& documents) {
      read_packed(*packed, sequence % packed->num_sequences(), documents);
    };
  }
  return [T, starts = std::move(starts)](std::int64_t sequence, DocumentOffsets& documents) {
    read_window(starts, T, sequence % (starts.back() / T), documents);
  };
}

}  // namespace echelon
