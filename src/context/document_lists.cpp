#include "context/document_lists.h"

#include "context/documents.h"
#include "context/per_document.h"

#include <algorithm>
#include <array>
#include <functional>

namespace echelon {
namespace {

/// Overwrites `pairs`, int64 [2, cp]: under the window and the other one. No run has tokens of two documents.
void count_pairs_of_runs(const TokenSplit& split, std::span<const std::int32_t> documents,
                         std::span<const TokenRun> runs, std::vector<std::int64_t>& pairs) {
  const auto cp = static_cast<std::size_t>(split.cp);
  pairs.assign(2 * cp, 0);
  const std::int32_t* next_document = documents.data() + 1;
  std::int32_t start = 0;
  for (const TokenRun& run : runs) {
    while (*next_document <= run.first) start = *next_document++;
    const auto pairs_of = [&](std::int64_t window) {
      return num_document_pairs(run.end - start, window) - num_document_pairs(run.first - start, window);
    };
    const auto rank = static_cast<std::size_t>(run.rank);
    pairs[rank] += pairs_of(split.window);
    if (split.other_window > 0) pairs[cp + rank] += pairs_of(split.other_window);
  }
}

}  // namespace

void DocumentLists::append(const TokenSplit& split, std::span<const std::int32_t> documents,
                           std::vector<TokenRun>& runs) {
  if (split.balancer == LoadBalancer::per_document) return append_per_document(documents, split.cp, runs);
  packer_.append_runs(documents, split.cp, split.window, runs);
}

void DocumentLists::plan(const TokenSplit& split) {
  if (split == planned_of_) return;
  const std::array<std::int32_t, 2> one_document = {0, static_cast<std::int32_t>(split.seq_len)};
  whole_.clear();
  append(split, one_document, whole_);
  count_pairs_of_runs(split, one_document, whole_, planned_);
  planned_of_ = split;
}

void DocumentLists::append_runs(const TokenSplit& split, std::span<const std::int32_t> documents,
                                std::vector<TokenRun>& runs) {
  plan(split);
  const std::size_t first = runs.size();
  if (documents.size() == 2) {  // one document
    runs.insert(runs.end(), whole_.begin(), whole_.end());
    return;
  }
  append(split, documents, runs);
  count_pairs_of_runs(split, documents, std::span(runs).subspan(first), pairs_);
  if (std::ranges::equal(pairs_, planned_, std::less_equal())) return;
  runs.resize(first);
  runs.insert(runs.end(), whole_.begin(), whole_.end());
}

}  // namespace echelon
